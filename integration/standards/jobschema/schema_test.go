// Package jobschema_test holds the schema of job files, which editors use, against the files and the decoder.
package jobschema_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"testing"

	"github.com/goccy/go-yaml"
	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/cronce-io/cronce/internal/jobfile/reference"
	"github.com/cronce-io/cronce/internal/lab/filetest"
	"github.com/cronce-io/cronce/internal/lab/jobfiletest"
)

func TestExamplesOfTheReferenceAreRight(t *testing.T) {
	t.Parallel()
	schema := compile(t)
	for _, p := range jobfiletest.Places() {
		text := p.File(p.Example)
		if p.Example == "" {
			t.Errorf("%s has no example", p.Path)
		} else if _, err := jobfiletest.Parse(text); err != nil {
			t.Errorf("%s: %v", p.Path, err)
		}
		if err := schema.check(text); err != nil {
			t.Errorf("%s: %v", p.Path, err)
		}
	}
}

// The decoder and the schema both refuse a value of the wrong kind, beyond a limit or not in a list of
// words. Both accept the last value within a limit.
func TestTheReferenceAndItsSchemaKnowTheLimits(t *testing.T) {
	t.Parallel()
	schema := compile(t)
	wrong := map[reference.Kind][]string{
		reference.Text: {"5", "true", "[a]", `""`}, reference.Word: {"zzz", "5"}, reference.Duration: {"1d", "soon", "5"},
		reference.Count: {"0", "-1", "1.5", "many"}, reference.Size: {"4MB", "4", "KiB"}, reference.Instant: {"5", "[a]"},
		reference.Texts: {"{a: b}", "[5]"}, reference.Mapping: {"5", "[a]", "{zzzz: 1}"}, reference.TextOr: {"[a]", "{zzzz: 1}"},
		reference.Headers: {"[a]", "5"}, reference.Flag: {"5", "yes", "[true]"},
	}
	for _, p := range jobfiletest.Places() {
		bad := slices.Clone(wrong[p.Kind])
		good := slices.Clone(p.Words)
		if p.Max > 0 && p.Kind == reference.Count {
			bad, good = append(bad, fmt.Sprint(p.Max+1)), append(good, "1", fmt.Sprint(p.Max))
		}
		for _, value := range good {
			if _, err := jobfiletest.Parse(p.File(value)); err != nil {
				t.Errorf("%s: %v", p.Path, err)
			}
			if err := schema.check(p.File(value)); err != nil {
				t.Errorf("%s: %v", p.Path, err)
			}
		}
		for _, value := range bad {
			if f, err := jobfiletest.Parse(p.File(value)); err == nil {
				t.Errorf("%s: %s: the decoder takes it: %v", p.Path, value, f)
			}
			if schema.check(p.File(value)) == nil {
				t.Errorf("%s: %s: the schema takes it", p.Path, value)
			}
		}
	}
}

// An editor that checks a valid file by the schema shows no error.
func TestTheSchemaTakesEveryFileThatIsRight(t *testing.T) {
	t.Parallel()
	schema := compile(t)
	var paths []string
	for _, pattern := range []string{"../../../examples/*.yaml", "../../../docs/*.yaml", "../../../internal/jobfile/testdata/*.yaml"} {
		found, err := filepath.Glob(pattern)
		if err != nil || len(found) == 0 {
			t.Fatalf("%s: %v %v", pattern, found, err)
		}
		paths = append(paths, found...)
	}
	for _, path := range paths {
		text := filetest.Read(t, path)
		if _, err := jobfiletest.Parse(string(text)); err != nil {
			t.Errorf("%s: %v", path, err)
		}
		if err := schema.check(string(text)); err != nil {
			t.Errorf("%s: %v", path, err)
		}
	}
}

type compiled struct{ *jsonschema.Schema }

func compile(t *testing.T) compiled {
	t.Helper()
	document, err := jsonschema.UnmarshalJSON(bytes.NewReader(reference.Schema()))
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	c.AssertFormat()
	if err := c.AddResource("jobs.schema.json", document); err != nil {
		t.Fatal(err)
	}
	s, err := c.Compile("jobs.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	return compiled{s}
}

// check validates a file as an editor does: it reads the file as YAML, and applies the schema.
func (c compiled) check(text string) error {
	var value any
	if err := yaml.Unmarshal([]byte(text), &value); err != nil {
		return err
	}
	data, err := json.Marshal(value)
	if err != nil {
		return err
	}
	plain, err := jsonschema.UnmarshalJSON(bytes.NewReader(data))
	if err != nil {
		return err
	}
	return errors.Join(c.Validate(plain))
}
