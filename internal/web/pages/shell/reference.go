package shell

import (
	"cmp"
	"encoding/json"
	"slices"
	"strings"
)

// Operation is an operation of the HTTP API, as its OpenAPI document describes it.
type Operation struct {
	ID         string `json:"operationId"`
	Summary    string
	Text       string `json:"description"`
	Parameters []struct{ Name, In, Description string }
	Samples    []struct{ Source string } `json:"x-codeSamples"`
	Responses  map[string]struct{ Description string }

	Method, Path string
}

// Reference returns the page that shows an OpenAPI document. It panics if the document is wrong.
func Reference(document []byte) Page {
	var d struct {
		Paths map[string]map[string]Operation
	}
	if err := json.Unmarshal(document, &d); err != nil {
		panic(err) // it was generated
	}
	var all []Operation
	for path, methods := range d.Paths {
		for method, o := range methods {
			o.Method, o.Path = strings.ToUpper(method), path
			all = append(all, o)
		}
	}
	slices.SortFunc(all, func(x, y Operation) int {
		return cmp.Or(strings.Compare(x.Path, y.Path), strings.Compare(x.Method, y.Method))
	})
	return Page{Path: "/api", File: "reference.html", Show: func(*Request) (any, error) { return all, nil }}
}
