package alertbody_test

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/cronce-io/cronce/internal/text/alertbody"
)

var at = time.Date(2026, 11, 21, 7, 0, 0, 0, time.UTC)

func data(kind string) alertbody.Data {
	return alertbody.Data{
		Alert: kind, Namespace: "cronce", Job: "report", Slot: "report:2026-11-21T07:00:00Z", Time: at.Add(4 * time.Second), Instant: at,
		Attempt: 3, Fence: 7, Node: "web1-711-0kq1-x2", Error: "exit status 1", Output: "line 1\nline 2", Key: strings.Repeat("k", 32),
	}
}

var kinds = []string{alertbody.Failed, alertbody.Expired, alertbody.Missed, alertbody.Late, alertbody.Recovered, alertbody.Succeeded}

// hostile are texts that break out of quotes, exceed limits, deceive, or call people.
var hostile = map[string]string{
	"quotes":        `"}],"text":"pwned" \" \\ ' </script> {{.Key}} ${x} $(id)`,
	"four megabyte": strings.Repeat("0123456789abcdef", 4<<20/16),
	"wide":          strings.Repeat("\U0001f525", 20_000),
	"escapes":       strings.Repeat("&<>\"\\\n", 5_000),
	"terminal":      "\x1b[31mred\x1b[0m\x00\x07\r\nnext",
	"right to left": "abc\u202etxt.exe\u202c \u2066x\u2069 \u061c",
	"invalid UTF-8": "a\xff\xfe\xc3(b",
	"separators":    "a\u2028b\u2029c\ufeffd",
	"mentions":      "@everyone @here @channel <!channel> <!here> <!everyone> <@U123> <#C1> <@&42> <@42> <at>all</at> [x](javascript:alert(1)) <https://evil|ok>",
	"fences":        "```\nout of the block *bold*\n```\n````",
	"blank":         " \n\t\r\n",
	"nothing":       "",
}

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
	if !utf8.Valid(body) || strings.Contains(string(body), `\ufffd\ufffd\ufffd\ufffd`) {
		t.Errorf("it is not UTF-8: %.500q", body)
	}
	return body
}

func TestEveryServiceGetsABodyThatFitsItsSchema(t *testing.T) {
	t.Parallel()
	for _, service := range alertbody.Services() {
		t.Run(service, func(t *testing.T) {
			t.Parallel()
			s := schema(t, service)
			for _, kind := range kinds {
				body := check(t, service, s, data(kind))
				if !bytes.Contains(body, []byte("report")) || kind != alertbody.Missed && kind != alertbody.Late && !bytes.Contains(body, []byte(kind)) ||
					!bytes.Contains(body, []byte("line 2")) || !bytes.Contains(body, []byte("exit status 1")) {
					t.Errorf("%s: it does not say what happened: %s", kind, body)
				}
				empty := data(kind)
				empty.Error, empty.Output, empty.Node, empty.Attempt, empty.Time = "", "", "", 0, time.Time{}
				check(t, service, s, empty)
			}
		})
	}
}

func TestHostileTextStaysText(t *testing.T) {
	t.Parallel()
	for _, service := range alertbody.Services() {
		for name, text := range hostile {
			t.Run(service+", "+name, func(t *testing.T) {
				t.Parallel()
				s := schema(t, service)
				for _, kind := range kinds {
					d := data(kind)
					d.Error, d.Output, d.Node = text, text, "web1"
					d.Slot, d.Since = "report:@"+text[:min(len(text), 128)], "report:@"+text[:min(len(text), 128)]
					body := check(t, service, s, d)
					if limit := map[string]int{"teams": 28_000, "pagerduty": 512 << 10}[service]; limit > 0 && len(body) > limit {
						t.Errorf("%d bytes, and %s takes %d", len(body), service, limit)
					}
					for _, text := range texts(t, body) {
						bad := strings.ContainsAny(text, "\x00\x07\x1b\r\u202e\u202c\u2066\u2069\u061c\u2028\u2029\ufeff")
						if bad || !utf8.ValidString(text) {
							t.Errorf("a mark that is not shown is left in %.200q", text)
						}
						if service == "slack" && strings.ContainsAny(text, "<>") {
							t.Errorf("markup is left in %.200q", text)
						}
						if (service == "slack" || service == "discord") && strings.Count(text, "```")%2 != 0 {
							t.Errorf("a block of code is not closed in %.300q", text)
						}
					}
				}
			})
		}
	}
}

// texts returns all strings of a JSON value.
func texts(t *testing.T, body []byte) (found []string) {
	t.Helper()
	var walk func(any)
	walk = func(v any) {
		switch v := v.(type) {
		case string:
			found = append(found, v)
		case []any:
			for _, inner := range v {
				walk(inner)
			}
		case map[string]any:
			for _, inner := range v {
				walk(inner)
			}
		}
	}
	var v any
	if err := json.Unmarshal(body, &v); err != nil {
		t.Fatal(err)
	}
	walk(v)
	return found
}

// Some services also bound all texts of a message together.
func TestTheTextsOfOneMessageFitTogether(t *testing.T) {
	t.Parallel()
	d := data(alertbody.Failed)
	d.Error, d.Output = strings.Repeat("x", 1<<20), strings.Repeat("y", 1<<20)
	sum := func(service string) (n int) {
		body, err := alertbody.Service(service, d, "alerts")
		if err != nil {
			t.Fatal(err)
		}
		for _, text := range texts(t, body) {
			n += utf8.RuneCountInString(text)
		}
		return n
	}
	if n := sum("discord"); n > 6000 {
		t.Errorf("Discord: %d characters in an embed, at most 6000", n)
	}
	if n := sum("slack"); n > 13_000 {
		t.Errorf("Slack: %d characters in all blocks, at most 13000", n)
	}
	body, err := alertbody.Service("ntfy", d, "alerts")
	var m struct{ Message string }
	if err != nil || json.Unmarshal(body, &m) != nil || len(m.Message) > 4096 {
		t.Errorf("ntfy: a message of %d bytes, at most 4096; %v", len(m.Message), err)
	}
}

func TestTheEndOfTheOutputIsKept(t *testing.T) {
	t.Parallel()
	d := data(alertbody.Failed)
	d.Output = strings.Repeat("noise\n", 100_000) + "panic: at the very end"
	for _, service := range alertbody.Services() {
		body, err := alertbody.Service(service, d, "alerts")
		if err != nil || !bytes.Contains(body, []byte("panic: at the very end")) {
			t.Errorf("%s: the end is not in %.500s, %v", service, body, err)
		}
	}
}

// The recovery of a job resolves the incident that its failure has triggered.
func TestARecoveryResolvesWhatTheFailureTriggered(t *testing.T) {
	t.Parallel()
	type event struct {
		Action string `json:"event_action"`
		Dedup  string `json:"dedup_key"`
	}
	of := func(kind, job string) (e event) {
		d := data(kind)
		d.Job = job
		body, err := alertbody.Service("pagerduty", d, "")
		if err != nil || json.Unmarshal(body, &e) != nil {
			t.Fatal(err)
		}
		return e
	}
	for _, kind := range kinds {
		want := event{"trigger", "cronce/report"}
		if slices.Contains([]string{alertbody.Recovered, alertbody.Succeeded}, kind) {
			want.Action = "resolve"
		}
		if got := of(kind, "report"); got != want {
			t.Errorf("%s: %+v, want %+v", kind, got, want)
		}
	}
	if of(alertbody.Failed, "report").Dedup == of(alertbody.Failed, "other").Dedup {
		t.Error("two jobs share a key")
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
