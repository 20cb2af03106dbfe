//go:build unix

package docs_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/cronce-io/cronce/client"
	"github.com/cronce-io/cronce/internal/api/fault"
	"github.com/cronce-io/cronce/internal/broker/space"
	"github.com/cronce-io/cronce/internal/lab/filetest"
	"github.com/cronce-io/cronce/internal/lab/natstest"
	"github.com/cronce-io/cronce/kv"
	"github.com/cronce-io/cronce/web"
)

// apiOperation is what the OpenAPI document says of one operation.
type apiOperation struct {
	ID          string `json:"operationId"`
	Summary     string
	Description string
	Parameters  []struct {
		Name, In, Description string
		Required              bool
	}
	RequestBody struct {
		Description string
		Required    bool
		Content     map[string]struct{ Schema map[string]any }
	}
	Responses map[string]struct {
		Description string
		Content     map[string]any
	}
	Samples []struct{ Source string } `json:"x-codeSamples"`
}

type apiDocument struct {
	Paths      map[string]map[string]apiOperation
	Components struct {
		Schemas map[string]struct {
			Properties map[string]struct{ Description string }
		}
	}
}

func apiServer(t *testing.T) *httptest.Server {
	t.Helper()
	nc := natstest.Run(t).Conn()
	if _, err := space.Setup(t.Context(), natstest.JetStream(t, nc), kv.Options{}); err != nil {
		t.Fatal(err)
	}
	c, err := client.New(t.Context(), nc)
	if err != nil {
		t.Fatal(err)
	}
	h := web.New(c)
	server := httptest.NewServer(h)
	t.Cleanup(func() { h.Close(); server.Close() })
	return server
}

func readDocument(t *testing.T, server *httptest.Server) (d apiDocument) {
	t.Helper()
	w, err := http.Get(server.URL + "/api/v1/openapi.json")
	if err != nil {
		t.Fatal(err)
	}
	defer w.Body.Close()
	if err := json.NewDecoder(w.Body).Decode(&d); err != nil {
		t.Fatal(err)
	}
	return d
}

func TestAPIPageIsMadeFromTheDocument(t *testing.T) {
	t.Parallel()
	text := between(t, string(filetest.Read(t, "api.md")), "<!-- From internal/api/fault: go test ./docs -rewrite -->\n", codesMarkdown())
	text = between(t, text, "<!-- From internal/web/api: go test ./docs -rewrite -->\n", operationsMarkdown(readDocument(t, apiServer(t))))
	holdFile(t, "api.md", text)
}

// codesMarkdown has a heading for each code, since its name is the end of a link.
func codesMarkdown() string {
	var b strings.Builder
	for _, c := range append(fault.Shared(), fault.OnlyHTTP()...) {
		fmt.Fprintf(&b, "\n### %s\n\n%d. %s.\n", c.Name, c.Status, c.Title)
	}
	return b.String() + "\n"
}

func operationsMarkdown(d apiDocument) string {
	var b strings.Builder
	for _, path := range sortedKeys(d.Paths) {
		for _, method := range sortedKeys(d.Paths[path]) {
			o := d.Paths[path][method]
			fmt.Fprintf(&b, "\n### %s %s\n\n%s.", strings.ToUpper(method), path, o.Summary)
			if o.Description != "" {
				fmt.Fprintf(&b, " %s", o.Description)
			}
			fmt.Fprintf(&b, "\n\n```sh\n%s\n```\n", o.Samples[0].Source)
			o.tables(&b, d)
		}
	}
	return b.String() + "\n"
}

func (o apiOperation) tables(b *strings.Builder, d apiDocument) {
	if len(o.Parameters) > 0 || o.RequestBody.Content != nil {
		fmt.Fprint(b, "\n| | where | what |\n|---|---|---|\n")
	}
	for _, p := range o.Parameters {
		fmt.Fprintf(b, "| `%s` | %s | %s |\n", p.Name, p.In, p.Description)
	}
	if body := o.RequestBody; body.Content != nil {
		fmt.Fprintf(b, "| | body | %s |\n", body.Description)
		ref, _ := body.Content["application/json"].Schema["$ref"].(string)
		members := d.Components.Schemas[strings.TrimPrefix(ref, "#/components/schemas/")].Properties
		for _, name := range sortedKeys(members) {
			fmt.Fprintf(b, "| `%s` | member of the body | %s |\n", name, members[name].Description)
		}
	}
	fmt.Fprint(b, "\n")
	var problems []string
	for _, status := range sortedKeys(o.Responses) {
		if r := o.Responses[status]; r.Content["application/problem+json"] == nil {
			fmt.Fprintf(b, "%s: %s. ", status, r.Description)
		} else {
			problems = append(problems, status)
		}
	}
	fmt.Fprintf(b, "Problems: %s.\n", strings.Join(problems, ", "))
}

// Each curl line of the page is typed, in an order in which it can succeed.
func TestCurlLinesOfTheAPIWork(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("curl"); err != nil {
		if os.Getenv("CRONCE_TEST_NO_SKIP") != "" {
			t.Fatal(err)
		}
		t.Skip("curl is missing")
	}
	server := apiServer(t)
	lines := map[string]string{}
	for _, methods := range readDocument(t, server).Paths {
		for _, o := range methods {
			lines[o.ID] = o.Samples[0].Source
		}
	}
	for _, id := range []string{
		"getDocument", "putJob", "listJobs", "getJob", "listComingSlots", "backfillJob", "pauseJob", "resumeJob", "releaseJob",
		"triggerJob", "listSlots", "getSlot", "explainSlot", "waitForSlot", "cancelSlot", "retrySlot", "listNodes", "getDoctor", "verifySlots", "repairSlots", "deleteJob", "streamEvents",
	} {
		line := lines[id]
		delete(lines, id)
		typed := day.ReplaceAllStringFunc(strings.ReplaceAll(line, "http://127.0.0.1:8080", server.URL), aroundYesterday)
		cmd := exec.Command("/bin/sh", "-c", strings.Replace(typed, "curl ", "curl -sS --fail-with-body ", 1))
		out, err := cmd.CombinedOutput()
		if id == "streamEvents" { // it ends when its time is over
			if !strings.Contains(string(out), "retry: 2000") {
				t.Errorf("%s: %v\n%s", typed, err, out)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v\n%s\n%s", id, err, typed, out)
		} else if !json.Valid(out) {
			t.Errorf("%s\nprints %s", typed, out)
		}
	}
	if len(lines) > 0 {
		t.Errorf("no test types the lines of %v: add them to the list", sortedKeys(lines))
	}
}

// aroundYesterday puts the days of the page before now.
func aroundYesterday(match string) string {
	return strings.ReplaceAll(match, match, aroundToday("2026-11-20T"))
}

func sortedKeys[T any](m map[string]T) []string {
	var keys []string
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}
