package api

// ProblemField locates one invalid field.
type ProblemField struct {
	Location string `json:"location"`
	Message  string `json:"message"`
}
