// Package docs_test holds the code against the protocol page and its vectors.
package docs_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"reflect"
	"testing"
	"time"

	"github.com/cronce-io/cronce/internal/core/plans"
	"github.com/cronce-io/cronce/internal/lab/filetest"
	"github.com/cronce-io/cronce/job"
)

var rewrite = flag.Bool("rewrite", false, "write what the code answers into protocol/*.json; the diff is a change of the protocol")

// hold asks the code about every case of a vector file and compares its answer
// with what the file says. A case holds questions and answers; answer returns it
// with the answers replaced by the code's.
func hold[C any](t *testing.T, file string, answer func(t *testing.T, c C) C) {
	t.Helper()
	path := filepath.Join("protocol", file)
	stored := filetest.Read(t, path)
	var cases []C
	strict := json.NewDecoder(bytes.NewReader(stored))
	strict.DisallowUnknownFields()
	if err := strict.Decode(&cases); err != nil || len(cases) == 0 {
		t.Fatalf("%s: %d cases, %v", file, len(cases), err)
	}
	for i, c := range cases {
		want := text(t, c)
		cases[i] = answer(t, c)
		if got := text(t, cases[i]); got != want && !*rewrite {
			t.Errorf("%s, case %d: the code says\n%s\nand the vector\n%s", file, i, got, want)
		}
	}
	all := text(t, cases)
	switch {
	case *rewrite:
		if err := os.WriteFile(path, []byte(all), 0o644); err != nil {
			t.Fatal(err)
		}
	case all != string(stored) && !t.Failed():
		t.Errorf("%s is not formatted as -rewrite does it", file)
	}
}

// text is how vectors are written: indented, and without HTML escapes.
func text(t *testing.T, v any) string {
	t.Helper()
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	if err := enc.Encode(v); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func raw(t *testing.T, v any) json.RawMessage {
	t.Helper()
	data, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// sameJSON compares what two values mean.
func sameJSON(t *testing.T, a, b []byte) bool {
	t.Helper()
	var x, y any
	if err := errors.Join(json.Unmarshal(a, &x), json.Unmarshal(b, &y)); err != nil {
		t.Fatal(err)
	}
	return reflect.DeepEqual(x, y)
}

// refusal is the word of the vectors for an error.
func refusal(t *testing.T, err error) string {
	t.Helper()
	switch {
	case err == nil:
		return ""
	case errors.Is(err, job.ErrVersion):
		return "version"
	case errors.Is(err, job.ErrInvalid):
		return "invalid"
	}
	t.Fatalf("an error of no kind: %v", err)
	return ""
}

// duration stands in vectors as it does in values: "1m30s".
type duration time.Duration

func (d duration) MarshalText() ([]byte, error) { return []byte(time.Duration(d).String()), nil }

func (d *duration) UnmarshalText(text []byte) error {
	parsed, err := time.ParseDuration(string(text))
	*d = duration(parsed)
	return err
}

// stored is a definition as it stands in the registry.
type stored struct {
	Revision uint64          `json:"revision"`
	Time     time.Time       `json:"time"`
	Value    json.RawMessage `json:"value"`
}

func (s stored) entry(t *testing.T) plans.Entry {
	t.Helper()
	var value bytes.Buffer // as it would be stored
	if err := json.Compact(&value, s.Value); err != nil {
		t.Fatal(err)
	}
	e, err := plans.DecodeEntry(value.Bytes(), s.Revision, s.Time)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// headers are a message's, one value each.
type headers map[string]string

func (h headers) lists() map[string][]string {
	lists := map[string][]string{}
	for name, value := range h {
		lists[name] = []string{value}
	}
	return lists
}

func single(lists map[string][]string) headers {
	h := headers{}
	for name, values := range lists {
		h[name] = values[0]
	}
	return h
}
