package serve

import (
	"log/slog"
	"slices"
	"testing"

	"github.com/cronce-io/cronce/internal/action/ready"
	"github.com/cronce-io/cronce/internal/jobfile"
	"github.com/cronce-io/cronce/internal/jobfile/reference"
)

// The reference lists every kind of action that a file may have.
func TestHandlerOfEveryKindOfAction(t *testing.T) {
	t.Parallel()
	action := member(t, reference.Fields(), "jobs", "action")
	for _, kind := range action.OneOf {
		example := member(t, action.Fields, kind).Example
		file, err := jobfile.Parse("f", []byte("version: 1\njobs:\n  - {name: a, schedule: '@hourly', action: {"+kind+": "+example+"}}\n"))
		if err != nil {
			t.Fatal(err)
		}
		if h, err := (shared{getenv: func(string) string { return "x" }}).handler(file.Jobs[0]); err != nil || h == nil {
			t.Errorf("action %s has the handler %v, %v", kind, h, err)
		}
	}
	if len(action.OneOf) == 0 {
		t.Error("the reference has no kinds of action")
	}
}

// A producer, or a worker of another queue, does not need the secrets of a job.
func TestHandlerNeedsTheVariablesOfItsQueuesOnly(t *testing.T) {
	t.Parallel()
	file, err := jobfile.Parse("f", []byte(`version: 1
jobs:
  - {name: mail, schedule: "@hourly", queue: mail, action: {http: {url: "http://127.0.0.1:1/", headers: {X-Key: {env: MAIL_KEY}}}}}
  - {name: report, schedule: "@hourly", action: {exec: [/bin/true], env: {A: {env: REPORT_KEY}}}}
`))
	if err != nil {
		t.Fatal(err)
	}
	getenv := func(name string) string { return map[string]string{"REPORT_KEY": "x"}[name] }
	for _, c := range []struct {
		working []string
		names   []string
		wrong   string
	}{
		{working: []string{"default"}, names: []string{"report"}},
		{working: nil, names: []string{"report"}},
		{working: []string{"default", "mail"}, wrong: "job mail: header X-Key: environment variable MAIL_KEY is not set, or empty"},
	} {
		h := handlers{entries: file.Jobs}
		err := h.equip(shared{getenv: getenv}, ready.New(slog.New(slog.DiscardHandler)), c.working)
		if (c.wrong == "") != (err == nil) || err != nil && err.Error() != c.wrong {
			t.Errorf("%q: got %v, want %q", c.working, err, c.wrong)
		}
		if !slices.Equal(h.names(), c.names) || len(h.jobs()) != 2 || (h.handler("mail") != nil) {
			t.Errorf("%q: handlers for %q, want %q; %d jobs", c.working, h.names(), c.names, len(h.jobs()))
		}
	}
}

// member finds a field by its path.
func member(t *testing.T, fields []reference.Field, path ...string) reference.Field {
	t.Helper()
	for _, f := range fields {
		if f.Name == path[0] {
			if len(path) == 1 {
				return f
			}
			return member(t, f.Fields, path[1:]...)
		}
	}
	t.Fatalf("the reference has no field %q", path[0])
	return reference.Field{}
}
