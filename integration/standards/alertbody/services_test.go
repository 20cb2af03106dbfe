// Package alertbody_test holds the alerts to services against the schemas of what the services take.
package alertbody_test

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/cronce-io/cronce/internal/lab/alerttest"
	"github.com/cronce-io/cronce/internal/text/alertbody"
)

func schema(t *testing.T, service string) *jsonschema.Schema {
	t.Helper()
	c := jsonschema.NewCompiler()
	c.AssertFormat()
	s, err := c.Compile(filepath.Join("testdata", service+".json"))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// check returns the body of a service, which fits its schema.
func check(t *testing.T, service string, s *jsonschema.Schema, d alertbody.Data) []byte {
	t.Helper()
	body, err := alertbody.Service(service, d, "alerts")
	if err != nil {
		t.Fatal(err)
	}
	v, err := jsonschema.UnmarshalJSON(bytes.NewReader(body))
	if err == nil {
		err = s.Validate(v)
	}
	if err != nil {
		t.Errorf("%v in\n%.2000s", err, body)
	}
	return body
}

func TestEveryServiceGetsABodyThatFitsItsSchema(t *testing.T) {
	t.Parallel()
	for _, service := range alertbody.Services() {
		t.Run(service, func(t *testing.T) {
			t.Parallel()
			s := schema(t, service)
			for _, kind := range alerttest.Kinds {
				body := check(t, service, s, alerttest.Data(kind))
				if !bytes.Contains(body, []byte("report")) || kind != alertbody.Missed && kind != alertbody.Late && !bytes.Contains(body, []byte(kind)) ||
					!bytes.Contains(body, []byte("line 2")) || !bytes.Contains(body, []byte("exit status 1")) {
					t.Errorf("%s: it does not say what happened: %s", kind, body)
				}
				empty := alerttest.Data(kind)
				empty.Error, empty.Output, empty.Node, empty.Attempt, empty.Time = "", "", "", 0, time.Time{}
				check(t, service, s, empty)
				for _, text := range alerttest.Hostile {
					check(t, service, s, alerttest.With(kind, text))
				}
			}
		})
	}
}

func TestASchemaRefusesWhatItsServiceRefuses(t *testing.T) {
	t.Parallel()
	for service, body := range map[string]string{
		"slack":     `{"text":"x","blocks":[{"type":"header","text":{"type":"plain_text","text":"` + strings.Repeat("x", 151) + `"}}]}`,
		"discord":   `{"content":"` + strings.Repeat("x", 2001) + `","embeds":[{}],"allowed_mentions":{"parse":[]}}`,
		"pagerduty": `{"routing_key":"short","event_action":"trigger","dedup_key":"a","payload":{"summary":"a","source":"b","severity":"error"}}`,
		"teams":     `{"type":"message","attachments":[]}`,
		"ntfy":      `{"topic":"a b","message":"x"}`,
	} {
		v, err := jsonschema.UnmarshalJSON(strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		if schema(t, service).Validate(v) == nil {
			t.Errorf("%s: %s is taken", service, body)
		}
		if _, err := os.Stat(filepath.Join("testdata", service+".json")); err != nil {
			t.Error(err)
		}
	}
}
