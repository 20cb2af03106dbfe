package alertbody_test

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/cronce-io/cronce/internal/lab/alerttest"
	"github.com/cronce-io/cronce/internal/text/alertbody"
)

// check returns the body of a service, which is UTF-8. integration/standards compares it with the service's schema.
func check(t *testing.T, service string, d alertbody.Data) []byte {
	t.Helper()
	body, err := alertbody.Service(service, d, "alerts")
	if err != nil {
		t.Fatal(err)
	}
	if !utf8.Valid(body) || strings.Contains(string(body), `\ufffd\ufffd\ufffd\ufffd`) {
		t.Errorf("it is not UTF-8: %.500q", body)
	}
	return body
}

func TestHostileTextStaysText(t *testing.T) {
	t.Parallel()
	for _, service := range alertbody.Services() {
		for name, text := range alerttest.Hostile {
			t.Run(service+", "+name, func(t *testing.T) {
				t.Parallel()
				for _, kind := range alerttest.Kinds {
					body := check(t, service, alerttest.With(kind, text))
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
	d := alerttest.Data(alertbody.Failed)
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
	d := alerttest.Data(alertbody.Failed)
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
		d := alerttest.Data(kind)
		d.Job = job
		body, err := alertbody.Service("pagerduty", d, "")
		if err != nil || json.Unmarshal(body, &e) != nil {
			t.Fatal(err)
		}
		return e
	}
	for _, kind := range alerttest.Kinds {
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
