package ec2

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// model is AWS's published model of the EC2 API, as botocore has it.
type model struct {
	Metadata   struct{ APIVersion, XMLNamespace string }
	Operations map[string]struct{ Input, Output member }
	Shapes     map[string]shape
}

type shape struct {
	Type     string
	Enum     []string
	Required []string
	Members  map[string]member
	Member   member
}

type member struct{ Shape, LocationName, QueryName string }

var readModel = sync.OnceValues(func() (*model, error) {
	for _, of := range []string{"awscli/botocore", "botocore"} {
		text, err := os.ReadFile("/usr/lib/python3/dist-packages/" + of + "/data/ec2/2016-11-15/service-2.json")
		if err == nil {
			m := &model{}
			return m, json.Unmarshal(text, m)
		}
	}
	return nil, nil
})

// asked is the name of a member in a request.
func (m member) asked(name string) string {
	if m.QueryName != "" {
		return m.QueryName
	}
	if m.LocationName != "" {
		name = m.LocationName
	}
	return strings.ToUpper(name[:1]) + name[1:]
}

// node is a part of a request: its value, or its parts by name.
type node struct {
	value string
	parts map[string]*node
}

func treeOf(form url.Values) *node {
	root := &node{}
	for key, values := range form {
		at := root
		for part := range strings.SplitSeq(key, ".") {
			if at.parts == nil {
				at.parts = map[string]*node{}
			}
			if at.parts[part] == nil {
				at.parts[part] = &node{}
			}
			at = at.parts[part]
		}
		at.value = values[0]
	}
	return root
}

// read checks a part of a request against its shape, and answers it by the names of the model's members.
func (m *model) read(at, name string, n *node) (any, error) {
	s := m.Shapes[name]
	switch s.Type {
	case "structure":
		out := map[string]any{}
		for key, part := range n.parts {
			found := ""
			for name, of := range s.Members {
				if of.asked(name) == key {
					found = name
				}
			}
			if found == "" {
				return nil, fmt.Errorf("%s: %s has no member %s", at, name, key)
			}
			value, err := m.read(at+"."+key, s.Members[found].Shape, part)
			if err != nil {
				return nil, err
			}
			out[found] = value
		}
		for _, name := range s.Required {
			if out[name] == nil {
				return nil, fmt.Errorf("%s: %s is missing", at, name)
			}
		}
		return out, nil
	case "list":
		out := []any{}
		for i := range len(n.parts) {
			part := n.parts[strconv.Itoa(i+1)]
			if part == nil {
				return nil, fmt.Errorf("%s: %d is missing", at, i+1)
			}
			value, err := m.read(fmt.Sprintf("%s.%d", at, i+1), s.Member.Shape, part)
			if err != nil {
				return nil, err
			}
			out = append(out, value)
		}
		return out, nil
	}
	return n.value, m.checkValue(at, s, n.value, n.parts)
}

func (m *model) checkValue(at string, s shape, value string, parts map[string]*node) (err error) {
	switch s.Type {
	case "integer", "long":
		_, err = strconv.Atoi(value)
	case "boolean":
		_, err = strconv.ParseBool(value)
	case "timestamp":
		_, err = time.Parse(time.RFC3339, value)
	}
	if err == nil && (parts != nil || len(s.Enum) > 0 && !slices.Contains(s.Enum, value)) {
		err = fmt.Errorf("%q is none of its values", value)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", at, err)
	}
	return nil
}

// write writes an answer of the model's members as XML.
func (m *model) write(out *bytes.Buffer, element, name string, value any) error {
	s, known := m.Shapes[name]
	if !known {
		return fmt.Errorf("<%s> has no shape", element)
	}
	if element != "" {
		out.WriteString("<" + element + ">")
		defer out.WriteString("</" + element + ">")
	}
	switch value := value.(type) {
	case map[string]any:
		for _, key := range slices.Sorted(maps.Keys(value)) {
			of, known := s.Members[key]
			if !known {
				return fmt.Errorf("%s has no member %s", name, key)
			}
			inner := of.LocationName
			if inner == "" {
				inner = key
			}
			if err := m.write(out, inner, of.Shape, value[key]); err != nil {
				return err
			}
		}
		return nil
	case []any:
		for _, item := range value {
			if err := m.write(out, s.Member.LocationName, s.Member.Shape, item); err != nil {
				return err
			}
		}
		return nil
	}
	text := fmt.Sprint(value)
	if err := m.checkValue(element, s, text, nil); err != nil {
		return err
	}
	return xml.EscapeText(out, []byte(text))
}

// server is an EC2 of the tests. It refuses what AWS's model does not have.
type server struct {
	t         *testing.T
	model     *model
	url       string
	mu        sync.Mutex
	instances []map[string]any // as they are shown, oldest first
	asked     map[string]string
	runs      []map[string]any  // requests that made an instance
	loses     string            // the action whose next answer is lost
	refuses   map[string]string // answers by action: code and words
	fate      string            // of new instances: the words with which they end instead of running
	marked    []string          // spot requests whose instances are taken back
	page      int               // instances in one answer; 0: all
}

func newServer(t *testing.T) *server {
	t.Helper()
	m, err := readModel()
	require.NoError(t, err)
	if m == nil {
		t.Skip("the model of the EC2 API is not here (Debian: awscli or python3-botocore)")
	}
	s := &server{t: t, model: m, asked: map[string]string{}, refuses: map[string]string{}}
	front := httptest.NewServer(s)
	t.Cleanup(front.Close)
	s.url = front.URL
	return s
}

// set changes the server while requests may be under way.
func (s *server) set(change func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change()
}

func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	_ = r.ParseForm()
	action := r.PostForm.Get("Action")
	operation, known := s.model.Operations[action]
	if !known || r.PostForm.Get("Version") != s.model.Metadata.APIVersion {
		s.t.Errorf("%s of version %s is not of the model", action, r.PostForm.Get("Version"))
	}
	if !strings.Contains(r.Header.Get("Authorization"), "/eu-central-1/ec2/aws4_request") {
		s.t.Errorf("%s is not signed for EC2", action)
	}
	r.PostForm.Del("Action")
	r.PostForm.Del("Version")
	in, err := s.model.read(action, operation.Input.Shape, treeOf(r.PostForm))
	if err != nil {
		s.t.Error(err)
		s.refuse(w, "UnknownParameter "+err.Error())
		return
	}
	request := in.(map[string]any) //nolint:forcetypeassert // all inputs are structures
	answer, refusal := s.serve(action, request, r.PostForm)
	if s.refuses[action] != "" {
		refusal = s.refuses[action]
	}
	if s.loses == action {
		s.loses = ""
		panic(http.ErrAbortHandler)
	}
	if refusal != "" {
		s.refuse(w, refusal)
		return
	}
	var body bytes.Buffer
	fmt.Fprintf(&body, "<%sResponse xmlns=%q><requestId>r-1</requestId>", action, s.model.Metadata.XMLNamespace)
	if err := s.model.write(&body, "", operation.Output.Shape, answer); err != nil {
		s.t.Errorf("the server of the tests answers %s wrongly: %v", action, err)
	}
	fmt.Fprintf(&body, "</%sResponse>", action)
	w.Header().Set("Content-Type", "text/xml;charset=UTF-8")
	_, _ = body.WriteTo(w)
}

// refuse answers an error: its code, and its words after a blank.
func (s *server) refuse(w http.ResponseWriter, refusal string) {
	code, words, _ := strings.Cut(refusal, " ")
	status := http.StatusBadRequest
	switch code {
	case "RequestLimitExceeded", "Unavailable":
		status = http.StatusServiceUnavailable
	case "InsufficientInstanceCapacity":
		status = http.StatusInternalServerError
	case "UnauthorizedOperation":
		status = http.StatusForbidden
	}
	w.WriteHeader(status)
	var text bytes.Buffer
	_ = xml.EscapeText(&text, []byte(words))
	_, _ = fmt.Fprintf(w, "<Response><Errors><Error><Code>%s</Code><Message>%s</Message></Error></Errors>"+
		"<RequestID>r-2</RequestID></Response>", code, text.String())
}

func (s *server) serve(action string, in map[string]any, form url.Values) (answer map[string]any, refusal string) {
	switch action {
	case "RunInstances":
		return s.run(in, form)
	case "DescribeInstances":
		return s.show(in)
	case "TerminateInstances":
		changes := []any{}
		for _, id := range list(in["InstanceIds"]) {
			i := s.instance(fmt.Sprint(id))
			if i == nil {
				return nil, "InvalidInstanceID.NotFound The instance ID does not exist"
			}
			s.end(i, "shutting-down", "Client.UserInitiatedShutdown: User initiated shutdown")
			changes = append(changes, map[string]any{"InstanceId": id, "CurrentState": i["State"]})
		}
		return map[string]any{"TerminatingInstances": changes}, ""
	case "DescribeSpotInstanceRequests":
		requests := []any{}
		for _, id := range s.marked {
			requests = append(requests, map[string]any{"SpotInstanceRequestId": id, "State": "active",
				"Status": map[string]any{"Code": "marked-for-termination", "UpdateTime": time.Now().UTC().Format(time.RFC3339)}})
		}
		if values := filters(in)["status-code"]; !slices.Equal(values, []string{"marked-for-termination", "marked-for-stop"}) {
			return nil, "InvalidParameterValue status-code"
		}
		return map[string]any{"SpotInstanceRequests": requests}, ""
	}
	s.t.Errorf("the server of the tests does not know %s", action)
	return nil, "InvalidAction"
}

func (s *server) run(in map[string]any, form url.Values) (answer map[string]any, refusal string) {
	if s.refuses["RunInstances"] != "" {
		return nil, ""
	}
	token := fmt.Sprint(in["ClientToken"])
	if earlier, used := s.asked[token]; used {
		if earlier != form.Encode() {
			return nil, "IdempotentParameterMismatch The request uses the same client token as a previous, " +
				"but non-identical request"
		}
		return map[string]any{"Instances": []any{}}, ""
	}
	s.asked[token] = form.Encode()
	s.runs = append(s.runs, in)
	n := len(s.runs)
	i := map[string]any{"InstanceId": fmt.Sprintf("i-%d", n), "PrivateDnsName": fmt.Sprintf("ip-10-0-0-%d", n),
		"LaunchTime":  time.Now().Add(time.Duration(n) * time.Second).UTC().Format(time.RFC3339),
		"ClientToken": token, "State": state("hidden")}
	for _, each := range list(in["TagSpecifications"]) {
		if spec := each.(map[string]any); spec["ResourceType"] == "instance" { //nolint:forcetypeassert // by the model
			i["Tags"] = spec["Tags"]
		}
	}
	if in["InstanceMarketOptions"] != nil {
		i["SpotInstanceRequestId"] = fmt.Sprintf("sir-%d", n)
	}
	s.instances = append(s.instances, i)
	return map[string]any{"Instances": []any{shown(i)}}, ""
}

var codes = map[string]int{"pending": 0, "running": 16, "shutting-down": 32, "terminated": 48, "stopped": 80}

func state(name string) map[string]any { return map[string]any{"Name": name, "Code": codes[name]} }

func nameOf(i map[string]any) string {
	return i["State"].(map[string]any)["Name"].(string) //nolint:forcetypeassert // state makes it
}

func shown(i map[string]any) map[string]any {
	if nameOf(i) == "hidden" {
		i = maps.Clone(i)
		i["State"] = state("pending")
	}
	return i
}

func (s *server) end(i map[string]any, how, words string) {
	code, _, _ := strings.Cut(words, ":")
	i["State"], i["StateReason"] = state(how), map[string]any{"Code": code, "Message": words}
}

func (s *server) instance(id string) map[string]any {
	for _, i := range s.instances {
		if i["InstanceId"] == id {
			return i
		}
	}
	return nil
}

// show answers the instances, and moves each on by one state: EC2 does not show a new one at once.
func (s *server) show(in map[string]any) (answer map[string]any, refusal string) {
	all := []any{}
	for _, i := range s.instances {
		fits := nameOf(i) != "hidden"
		for name, values := range filters(in) {
			switch key, isTag := strings.CutPrefix(name, "tag:"); {
			case isTag:
				fits = fits && slices.ContainsFunc(list(i["Tags"]), func(each any) bool {
					t := each.(map[string]any) //nolint:forcetypeassert // by the model
					return t["Key"] == key && slices.Contains(values, t["Value"].(string))
				})
			case name == "instance-state-name":
				fits = fits && slices.Contains(values, nameOf(i))
			default:
				return nil, "InvalidParameterValue The filter '" + name + "' is invalid"
			}
		}
		if fits {
			all = append(all, map[string]any{"ReservationId": "r-1", "Instances": []any{maps.Clone(i)}})
		}
		switch nameOf(i) {
		case "hidden":
			i["State"] = state("pending")
		case "pending":
			if i["State"] = state("running"); s.fate != "" {
				s.end(i, "terminated", s.fate)
			}
		case "shutting-down":
			i["State"] = state("terminated")
		}
	}
	answer = map[string]any{}
	from, _ := strconv.Atoi(fmt.Sprint(in["NextToken"]))
	to := len(all)
	if s.page > 0 && from+s.page < to {
		to = from + s.page
		answer["NextToken"] = strconv.Itoa(to)
	}
	answer["Reservations"] = all[min(from, to):to]
	return answer, ""
}

func list(value any) []any {
	l, _ := value.([]any)
	return l
}

func filters(in map[string]any) map[string][]string {
	out := map[string][]string{}
	for _, each := range list(in["Filters"]) {
		f := each.(map[string]any) //nolint:forcetypeassert // by the model
		for _, value := range list(f["Values"]) {
			out[f["Name"].(string)] = append(out[f["Name"].(string)], value.(string)) //nolint:forcetypeassert // by the model
		}
	}
	return out
}
