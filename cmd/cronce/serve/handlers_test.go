package serve

import (
	"testing"

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
