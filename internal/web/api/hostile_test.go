package api_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/cronce-io/cronce/client"
	"github.com/cronce-io/cronce/internal/lab/apitest"
	"github.com/cronce-io/cronce/internal/web/secure"
)

// described has the inputs of an operation, as the document describes them.
type described struct {
	ID         string `json:"operationId"`
	Parameters []struct {
		Name, In string
		Schema   struct {
			Type, Format string
			Enum         []string
			Items        *struct{ Enum []string }
		}
	}
	RequestBody struct {
		Content map[string]struct {
			Schema struct {
				Ref string `json:"$ref"`
			}
		}
	}
}

// inputs reads the document: the operations by method and path, and the members of bodies by the
// names of their schemas.
func inputs(t *testing.T) (paths map[string]map[string]described, members map[string][]string) {
	t.Helper()
	var doc struct {
		Paths      map[string]map[string]described
		Components struct {
			Schemas map[string]struct{ Properties map[string]any }
		}
	}
	if err := json.Unmarshal(apitest.Document(t), &doc); err != nil {
		t.Fatal(err)
	}
	members = map[string][]string{}
	for name, s := range doc.Components.Schemas {
		for member := range s.Properties {
			members["#/components/schemas/"+name] = append(members["#/components/schemas/"+name], member)
		}
	}
	return doc.Paths, members
}

// ask sends a request and returns the answer. The body of a stream is not read.
func ask(t *testing.T, r *http.Request) (*http.Response, string) {
	t.Helper()
	w, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Body.Close()
	if w.Header.Get("Content-Type") == "text/event-stream" {
		return w, ""
	}
	body, err := io.ReadAll(w.Body)
	if err != nil {
		t.Fatal(err)
	}
	return w, string(body)
}

// isProblem reports what is wrong with the answer to a bad request.
func isProblem(w *http.Response, body string) string {
	var d struct {
		Type, Detail string
		Status       int
	}
	switch err := json.Unmarshal([]byte(body), &d); {
	case w.StatusCode < 400 || w.StatusCode >= 500:
		return fmt.Sprintf("status %d", w.StatusCode)
	case w.Header.Get("Content-Type") != "application/problem+json" || err != nil:
		return fmt.Sprintf("no problem document: %v", w.Header)
	case d.Status != w.StatusCode || d.Detail == "" || d.Type == "":
		return fmt.Sprintf("problem %+v", d)
	case strings.ContainsAny(d.Detail, "\x00\x1b\n\r\u202e") || len(d.Detail) > 4100:
		return fmt.Sprintf("detail %q", d.Detail)
	}
	return ""
}

// path fills the parameters of a path with what exists.
func path(of string) string {
	return "/api/v1" + strings.NewReplacer("{job}", "quick", "{id}", "quick:@nosuch").Replace(of)
}

var nasty = []string{
	"\x00", "\xff\xfe", "\x1b[31m", "\u202egnp", strings.Repeat("9", 40_000), "../../etc/passwd", "<script>alert(1)</script>", "' OR 1=1 --", "${jndi:x}", "a b", "*", ">",
}

// Each query parameter of each operation gets values of the wrong type, range, encoding and size.
func TestBadParametersAreProblems(t *testing.T) {
	t.Parallel()
	server, c := apitest.Serve(t)
	paths, _ := inputs(t)
	before, tried := nameJobs(t, c), 0
	for pattern, methods := range paths {
		for method, o := range methods {
			for _, p := range o.Parameters {
				typed := p.Schema.Type != "string" || p.Schema.Format != "" || p.Schema.Enum != nil
				values := nasty
				if typed && p.Schema.Type != "array" {
					values = slices.Concat(values, []string{"-1", "1e9", "NaN", "yes", "18446744073709551616", "2026-13-01T00:00:00Z", "", "1,2"})
				}
				if p.In != "query" {
					continue
				}
				for _, value := range values {
					tried++
					r, err := http.NewRequest(strings.ToUpper(method), server.URL+path(pattern)+"?"+url.Values{p.Name: {value}}.Encode(), nil)
					if err != nil {
						t.Fatal(err)
					}
					w, body := ask(t, r)
					if wrong := isProblem(w, body); wrong != "" {
						t.Errorf("%s with %s=%.60q: %s: %.300s", o.ID, p.Name, value, wrong, body)
					}
				}
			}
		}
	}
	if after := nameJobs(t, c); after != before || tried < 200 {
		t.Errorf("%d bad requests: the jobs were %s and are %s", tried, before, after)
	}
}

// Each member of each body gets values of the wrong type, and each body is wrong as a whole.
func TestBadBodiesAreProblems(t *testing.T) {
	t.Parallel()
	server, c := apitest.Serve(t)
	paths, members := inputs(t)
	before, tried := nameJobs(t, c), 0
	for pattern, methods := range paths {
		for method, o := range methods {
			if o.RequestBody.Content == nil {
				continue
			}
			bodies := []string{
				"[]", "null", `"text"`, "1", "{", "{}}", "\xff", "{\"a\":\"\xff\"}", "{} {}", `{"nosuch":1}`, strings.Repeat("[", 100_000), `{"a":` + strings.Repeat(`{"a":`, 50_000), "\x00", "<xml/>",
			}
			for _, member := range members[o.RequestBody.Content["application/json"].Schema.Ref] {
				if member == "payload" {
					continue // any JSON
				}
				for _, value := range []string{`[[]]`, `{"a":1}`, `1e400`, `-1.5`, `"\u0000"`, `[1]`, `"yesterday"`, "null"} {
					bodies = append(bodies, fmt.Sprintf(`{%q:%s}`, member, value))
				}
			}
			for _, text := range bodies {
				tried++
				r, err := http.NewRequest(strings.ToUpper(method), server.URL+path(pattern), strings.NewReader(text))
				if err != nil {
					t.Fatal(err)
				}
				r.Header.Set("Content-Type", "application/json")
				w, body := ask(t, r)
				if wrong := isProblem(w, body); wrong != "" {
					t.Errorf("%s with the body %.60q: %s: %.300s", o.ID, text, wrong, body)
				}
			}
		}
	}
	if after := nameJobs(t, c); after != before || tried < 40 {
		t.Errorf("%d bad requests: the jobs were %s and are %s", tried, before, after)
	}
}

// endless is a body without an end.
type endless struct{ sent atomic.Int64 }

func (e *endless) Read(p []byte) (int, error) {
	e.sent.Add(int64(len(p)))
	return copy(p, strings.Repeat("x", len(p))), nil
}

// A body that is too large is refused when it is announced, and cut when it is not.
func TestOversizedBodiesAreRefusedByEveryOrder(t *testing.T) {
	t.Parallel()
	server, _ := apitest.Serve(t)
	guarded := server.Config.Handler
	server.Config.Handler = secure.Wrap(guarded)
	paths, _ := inputs(t)
	for pattern, methods := range paths {
		for method, o := range methods {
			if method == "get" {
				continue
			}
			for _, announced := range []bool{true, false} {
				sent := &endless{}
				r, err := http.NewRequest(strings.ToUpper(method), server.URL+path(pattern), sent)
				if err != nil {
					t.Fatal(err)
				}
				r.Header.Set("Content-Type", "application/json")
				if announced {
					r.ContentLength = 1 << 30
				}
				w, err := http.DefaultClient.Do(r)
				if err != nil {
					continue // the server has closed the connection while the client was sending
				}
				body, _ := io.ReadAll(w.Body) // the connection may be closed
				w.Body.Close()
				if w.StatusCode != http.StatusRequestEntityTooLarge && w.StatusCode != http.StatusBadRequest {
					t.Errorf("%s, announced: %v: status %d after %d bytes: %s", o.ID, announced, w.StatusCode, sent.sent.Load(), body)
				}
				if n := sent.sent.Load(); n > 16<<20 {
					t.Errorf("%s, announced: %v: the server took %d bytes", o.ID, announced, n)
				}
			}
		}
	}
}

func nameJobs(t *testing.T, c *client.Client) string {
	t.Helper()
	list, err := c.Jobs(t.Context(), client.JobFilter{})
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, j := range list.Jobs {
		all = append(all, fmt.Sprint(j.Job, j.Revision, j.Paused))
	}
	return strings.Join(all, " ")
}
