package docs_test

import (
	"encoding/json"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cronce-io/cronce/internal/core"
	"github.com/cronce-io/cronce/internal/core/exchange"
	"github.com/cronce-io/cronce/internal/core/plans"
	"github.com/cronce-io/cronce/internal/lab/filetest"
	"github.com/cronce-io/cronce/job"
)

// The page has to name what is stored and sent: every member, header, state and
// kind, and every file of vectors.
func TestPageNamesWhatIsOnTheWire(t *testing.T) {
	t.Parallel()
	page := filetest.Read(t, "protocol.md")
	words := []string{string(job.Pending), string(exchange.NodeAlive), string(exchange.NodeStopped), string(exchange.NodeFenced)}
	for _, s := range []job.State{job.Waiting, job.Running, job.Retrying, job.Succeeded, job.Failed, job.Skipped, job.Missed, job.Expired, job.Cancelled} {
		words = append(words, string(s))
	}
	for _, kind := range exchange.KeptKinds() {
		words = append(words, string(kind))
	}
	var m core.Message
	fill(reflect.ValueOf(&m).Elem())
	for name := range m.Header() {
		words = append(words, name)
	}
	for _, word := range slices.Concat(words, members(t)) {
		if !strings.Contains(string(page), "`"+word+"`") {
			t.Errorf("docs/protocol.md does not say what `%s` is", word)
		}
	}
	files, err := filepath.Glob("protocol/*.json")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, file := range files {
		if !strings.Contains(string(page), "]("+filepath.ToSlash(file)+")") {
			t.Errorf("docs/protocol.md does not link %s", file)
		}
	}
}

// members are the names in the JSON of all stored values that have every field
// set: a new one is noticed here.
func members(t *testing.T) []string {
	t.Helper()
	seen := map[string]bool{}
	for _, v := range []any{new(job.Settings), new(plans.Definition), new(exchange.Node), new(job.Record), new(exchange.Watermark), new(core.Lock), new(job.Event)} {
		fill(reflect.ValueOf(v).Elem())
		var decoded any
		if err := json.Unmarshal(raw(t, v), &decoded); err != nil {
			t.Fatal(err)
		}
		collect(decoded, seen)
	}
	var names []string
	for name := range seen {
		names = append(names, name)
	}
	return names
}

// fill sets every field of v, to whatever: maps aside, which hold what is not
// known.
func fill(v reflect.Value) {
	switch at := time.Unix(1, 0).UTC(); v.Interface().(type) {
	case time.Time:
		v.Set(reflect.ValueOf(at))
		return
	case json.RawMessage:
		v.Set(reflect.ValueOf(json.RawMessage("1")))
		return
	}
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			fill(v.Field(i))
		}
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		fill(v.Index(0))
	case reflect.String:
		v.SetString("x")
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int64:
		v.SetInt(1)
	case reflect.Uint64:
		v.SetUint(1)
	}
}

func collect(value any, seen map[string]bool) {
	switch v := value.(type) {
	case map[string]any:
		for name, inner := range v {
			seen[name] = true
			collect(inner, seen)
		}
	case []any:
		for _, inner := range v {
			collect(inner, seen)
		}
	}
}
