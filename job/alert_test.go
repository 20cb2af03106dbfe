package job

import (
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"
)

func TestAnAlertNamesOneTargetAndNoSecret(t *testing.T) {
	t.Parallel()
	web := func(edit func(*AlertHTTP)) *Alert {
		h := AlertHTTP{URL: "https://example.com/a"}
		edit(&h)
		return &Alert{HTTP: &h}
	}
	header := func(name, env string) *Alert {
		return web(func(h *AlertHTTP) { h.Headers = []AlertHeader{{Name: name, Env: env}} })
	}
	for name, c := range map[string]struct {
		alert *Alert
		wrong string
	}{
		"a webhook":                {web(func(*AlertHTTP) {}), ""},
		"a URL in the environment": {web(func(h *AlertHTTP) { h.URL, h.URLEnv = "", "CRONCE_ALERT_URL" }), ""},
		"a header":                 {header("Authorization", "CRONCE_ALERT_TOKEN"), ""},
		"a subject":                {&Alert{NATS: &AlertNATS{"alerts.a"}}, ""},
		"none":                     {&Alert{}, "want either http or nats"},
		"both URLs":                {web(func(h *AlertHTTP) { h.URLEnv = "CRONCE_ALERT_URL" }), "not both"},
		"no URL":                   {web(func(h *AlertHTTP) { h.URL = "" }), "want a URL"},
		"another scheme":           {web(func(h *AlertHTTP) { h.URL = "file:///etc/passwd" }), "want a URL"},
		"a password":               {web(func(h *AlertHTTP) { h.URL = "https://u:word@example.com" }), "password"},
		"another variable":         {header("X-Key", "AWS_SECRET_ACCESS_KEY"), "begins with CRONCE_ALERT_"},
		"no variable":              {header("X-Key", ""), "begins with CRONCE_ALERT_"},
		"a variable with a break":  {header("X-Key", "CRONCE_ALERT_A\nB"), "begins with CRONCE_ALERT_"},
		"a header of ours":         {header("cronce-slot-id", "CRONCE_ALERT_A"), "is set for each slot"},
		"a header of the wire":     {header("content-length", "CRONCE_ALERT_A"), "belongs to the connection"},
		"a header with a break":    {header("X\r\nY", "CRONCE_ALERT_A"), "is not a valid header name"},
		"a header twice": {web(func(h *AlertHTTP) {
			h.Headers = []AlertHeader{{Name: "X-A", Env: "CRONCE_ALERT_A"}, {Name: "x-a", Env: "CRONCE_ALERT_A"}}
		}), "twice"},
		"a prefix with a break": {web(func(h *AlertHTTP) {
			h.Headers = []AlertHeader{{Name: "X-A", Prefix: "a\r\nB: ", Env: "CRONCE_ALERT_A"}}
		}), "control characters"},
		"a wildcard":           {&Alert{NATS: &AlertNATS{"alerts.*"}}, "without wildcards"},
		"the server's subject": {&Alert{NATS: &AlertNATS{"$JS.API.STREAM.DELETE.ORDERS"}}, "reserved for the server"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, j := range []Job{{Name: "a", Schedule: "@daily", OnFailure: c.alert}, {Name: "a", Schedule: "@daily", OnMissed: c.alert}} {
				err := j.Validate()
				switch {
				case c.wrong == "" && err != nil:
					t.Error(err)
				case c.wrong != "" && (!errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), c.wrong) || strings.Contains(err.Error(), "word@")):
					t.Errorf("got %v, want %q in it", err, c.wrong)
				case c.wrong == "":
					data, err := json.Marshal(j)
					var back Job
					if err != nil || json.Unmarshal(data, &back) != nil || !reflect.DeepEqual(back.OnFailure, j.OnFailure) || !reflect.DeepEqual(back.OnMissed, j.OnMissed) {
						t.Errorf("%s is read as %+v, %v", data, back, err)
					}
				}
			}
		})
	}
}

func TestAlertsThatCannotBeSentAreRefused(t *testing.T) {
	t.Parallel()
	web := func(edit func(*Alert)) *Alert {
		a := Alert{HTTP: &AlertHTTP{URL: "https://example.com/a"}}
		edit(&a)
		return &a
	}
	plain := web(func(*Alert) {})
	for wrong, j := range map[string]Job{
		"on_late: after 1m0s without a target":              {LateAfter: time.Minute},
		"on_late.after 0s: want more than zero":             {OnLate: plain},
		"on_late.after -1m0s: want more than zero":          {OnLate: plain, LateAfter: -time.Minute},
		"on_late.after 25h0m0s: want more than zero":        {OnLate: plain, LateAfter: 25 * time.Hour},
		"on_late: it applies to schedules only":             {Schedule: OnDemand, OnLate: plain, LateAfter: time.Minute},
		"heartbeat: headers are not allowed":                {Heartbeat: &AlertHTTP{URL: "https://example.com", Headers: []AlertHeader{{Name: "X-A", Env: "CRONCE_ALERT_A"}}}},
		"heartbeat.url: want a URL":                         {Heartbeat: &AlertHTTP{}},
		`on_success.format "slak": want slack`:              {OnSuccess: web(func(a *Alert) { a.Format = "slak" })},
		"on_success: want either format or template":        {OnSuccess: web(func(a *Alert) { a.Format, a.Template = "slack", "x" })},
		"on_recovered: format pagerduty needs key":          {OnRecovered: web(func(a *Alert) { a.Format = "pagerduty" })},
		"on_recovered.format: it needs http":                {OnRecovered: &Alert{NATS: &AlertNATS{"a"}, Format: "slack"}},
		"on_failure.template: line 1, column 3: <.Nothing>": {OnFailure: web(func(a *Alert) { a.Template = "{{.Nothing}}" })},
		"on_failure.template: what it writes is not JSON":   {OnFailure: web(func(a *Alert) { a.Template = `{"text": "{{.Error}}"}` })},
		"on_failure.template: it is empty":                  {OnFailure: web(func(a *Alert) { a.Template = " " })},
		"at most 8192":                                      {OnFailure: web(func(a *Alert) { a.Template = strings.Repeat("x", MaxAlertTemplate+1) })},
	} {
		if j.Name = "a"; j.Schedule == "" {
			j.Schedule = "@daily"
		}
		if err := j.Validate(); !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), wrong) {
			t.Errorf("got %v, want %q in it", err, wrong)
		}
	}
	if err := (Job{Name: "a", Schedule: "@daily", OnLate: plain, LateAfter: time.Minute, Heartbeat: &AlertHTTP{URLEnv: "CRONCE_ALERT_URL"}}).Validate(); err != nil {
		t.Error(err)
	}
}
