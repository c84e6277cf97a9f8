package job

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"

	"mainstay.dev/sdk/api"
)

// Changes are the fields by which two definitions differ, as paths: + is new, - is removed, ~ is changed.
func Changes(before, after *api.JobDefinition) []string {
	changes := []string{}
	compare("", tree(before), tree(after), &changes)
	return changes
}

func tree(d *api.JobDefinition) (value any) {
	text, err := json.Marshal(d)
	if err == nil {
		decoder := json.NewDecoder(bytes.NewReader(text))
		decoder.UseNumber() // large numbers that differ are not the same
		err = decoder.Decode(&value)
	}
	if err != nil {
		return nil
	}
	return value
}

func compare(path string, before, after any, changes *[]string) {
	old, wasMap := before.(map[string]any)
	present, isMap := after.(map[string]any)
	switch {
	case reflect.DeepEqual(before, after):
	case !wasMap || !isMap:
		*changes = append(*changes, "~ "+path)
	default:
		all := maps.Clone(old)
		maps.Copy(all, present)
		for _, key := range slices.Sorted(maps.Keys(all)) {
			at := key
			if path != "" {
				at = fmt.Sprintf("%s.%s", path, key)
			}
			_, had := old[key]
			_, has := present[key]
			switch {
			case !had:
				*changes = append(*changes, "+ "+at)
			case !has:
				*changes = append(*changes, "- "+at)
			default:
				compare(at, old[key], present[key], changes)
			}
		}
	}
}
