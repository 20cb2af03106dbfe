package httpapi_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// contract compares requests and answers with the OpenAPI document that the server sends.
type contract struct {
	server   *httptest.Server
	ops      map[string]operation
	compiler *jsonschema.Compiler
	called   map[string]bool // operation and status
}

// operation is an operation as the document describes it.
type operation struct {
	ID          string `json:"operationId"`
	Parameters  []parameter
	RequestBody *struct{ Required bool }
	Responses   map[string]struct {
		Content map[string]any
		Headers map[string]any
	}

	method, path string
	pattern      *regexp.Regexp
}

type parameter struct {
	Name, In string
	Required bool
}

const documentURL = "file:///openapi.json"

func newContract(t *testing.T, server *httptest.Server) *contract {
	t.Helper()
	w, err := http.Get(server.URL + "/api/v1/openapi.json")
	if err != nil {
		t.Fatal(err)
	}
	defer w.Body.Close()
	data, err := io.ReadAll(w.Body)
	if err != nil || w.StatusCode != 200 {
		t.Fatalf("status %d, %v", w.StatusCode, err)
	}
	var doc struct {
		Paths map[string]map[string]operation
	}
	if err := json.Unmarshal(data, &doc); err != nil {
		t.Fatal(err)
	}
	c := &contract{server: server, ops: map[string]operation{}, called: map[string]bool{}, compiler: jsonschema.NewCompiler()}
	for path, methods := range doc.Paths {
		for method, op := range methods {
			op.method, op.path = strings.ToUpper(method), path
			pattern := regexp.QuoteMeta(path)
			pattern = regexp.MustCompile(`\\\{[a-z]+\\\}`).ReplaceAllString(pattern, `[^/]+`)
			op.pattern = regexp.MustCompile("^/api/v1" + pattern + "$")
			if c.ops[op.ID].ID != "" {
				t.Errorf("two operations have the ID %s", op.ID)
			}
			c.ops[op.ID] = op
		}
	}
	tree, err := jsonschema.UnmarshalJSON(bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	closeSchemas(tree)
	c.compiler.AssertFormat()
	if err := c.compiler.AddResource(documentURL, tree); err != nil {
		t.Fatal(err)
	}
	return c
}

// closeSchemas forbids members that the document does not have, so that the test finds them.
func closeSchemas(tree any) {
	switch node := tree.(type) {
	case map[string]any:
		if _, ok := node["properties"]; ok && node["type"] == "object" {
			node["additionalProperties"] = false
		}
		for _, child := range node {
			closeSchemas(child)
		}
	case []any:
		for _, child := range node {
			closeSchemas(child)
		}
	}
}

// request is one call.
type request struct {
	op, path string // path below /api/v1, with its query
	header   []string
	body     string
	want     int
}

// do sends a request, compares both sides with the document and returns the answer.
func (c *contract) do(t *testing.T, r request) (*http.Response, string) {
	t.Helper()
	op, ok := c.ops[r.op]
	if !ok {
		t.Fatalf("the document has no operation %s", r.op)
	}
	req, err := http.NewRequest(op.method, c.server.URL+"/api/v1"+r.path, strings.NewReader(r.body))
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(r.header); i += 2 {
		req.Header.Set(r.header[i], r.header[i+1])
	}
	if r.body != "" && req.Header.Get("Content-Type") == "" {
		req.Header.Set("Content-Type", "application/json")
	}
	if r.want < 400 {
		c.checkRequest(t, op, req, r)
	}
	w, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Body.Close()
	body, err := io.ReadAll(w.Body)
	if err != nil {
		t.Fatal(err)
	}
	if w.StatusCode != r.want {
		t.Fatalf("%s %s: status %d, want %d: %s", op.method, r.path, w.StatusCode, r.want, body)
	}
	c.checkAnswer(t, op, w, body)
	c.called[fmt.Sprint(r.op, w.StatusCode)] = true
	return w, string(body)
}

func (c *contract) checkRequest(t *testing.T, op operation, req *http.Request, r request) {
	t.Helper()
	if !op.pattern.MatchString(req.URL.EscapedPath()) {
		t.Errorf("%s: path %s is not %s", op.ID, req.URL.Path, op.path)
	}
	query, err := url.ParseQuery(req.URL.RawQuery)
	if err != nil {
		t.Fatal(err)
	}
	for name := range query {
		if !slices.ContainsFunc(op.Parameters, func(p parameter) bool { return p.In == "query" && p.Name == name }) {
			t.Errorf("%s has no parameter %s in the document", op.ID, name)
		}
	}
	for _, p := range op.Parameters {
		if p.Required && (p.In == "query" && query.Get(p.Name) == "" || p.In == "header" && req.Header.Get(p.Name) == "") {
			t.Errorf("%s: parameter %s is missing", op.ID, p.Name)
		}
	}
	switch {
	case r.body != "" && op.RequestBody == nil:
		t.Errorf("%s has no body in the document", op.ID)
	case r.body == "" && op.RequestBody != nil && op.RequestBody.Required:
		t.Errorf("%s needs a body in the document", op.ID)
	case r.body != "":
		c.validate(t, op, "/requestBody/content/application~1json/schema", []byte(r.body))
	}
}

func (c *contract) checkAnswer(t *testing.T, op operation, w *http.Response, body []byte) {
	t.Helper()
	status := fmt.Sprint(w.StatusCode)
	says, ok := op.Responses[status]
	if !ok {
		t.Errorf("%s: the document does not have the status %s", op.ID, status)
		return
	}
	for name := range says.Headers {
		if w.Header.Get(name) == "" {
			t.Errorf("%s %s has no header %s", op.ID, status, name)
		}
	}
	media, _, _ := strings.Cut(w.Header.Get("Content-Type"), ";")
	if _, ok := says.Content[media]; !ok {
		t.Errorf("%s %s has the media type %q, and in the document %v", op.ID, status, media, says.Content)
		return
	}
	if media != "application/json" && media != "application/problem+json" {
		return
	}
	c.validate(t, op, "/responses/"+status+"/content/"+strings.ReplaceAll(media, "/", "~1")+"/schema", body)
}

func (c *contract) validate(t *testing.T, op operation, part string, data []byte) {
	t.Helper()
	pointer := "#/paths/" + strings.ReplaceAll(strings.ReplaceAll(op.path, "~", "~0"), "/", "~1") + "/" + strings.ToLower(op.method) + part
	schema, err := c.compiler.Compile(documentURL + (&url.URL{Fragment: pointer[1:]}).String())
	if err != nil {
		t.Fatalf("%s: %v", op.ID, err)
	}
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(data))
	if err != nil {
		t.Fatalf("%s: %v in %s", op.ID, err, data)
	}
	if err := schema.Validate(value); err != nil {
		t.Errorf("%s%s: %v\nin %s", op.ID, part, err, data)
	}
}

// complete reports the operations, and the statuses of success, that no request had.
func (c *contract) complete(t *testing.T) {
	t.Helper()
	for id, op := range c.ops {
		for status := range op.Responses {
			if status < "400" && !c.called[id+status] {
				t.Errorf("no request to %s had the status %s", id, status)
			}
		}
	}
}
