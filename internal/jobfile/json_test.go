package jobfile

import (
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"

	"github.com/cronce-io/cronce/internal/jobfile/spec"
	"github.com/cronce-io/cronce/internal/lab/filetest"
	"github.com/cronce-io/cronce/job"
)

// JSON is YAML, so both ways of reading must agree.
func TestParseJSONReadsTheSameJobsAsParse(t *testing.T) {
	t.Parallel()
	text := filetest.Read(t, "testdata/everything.yaml")
	var tree any
	if err := yaml.Unmarshal(text, &tree); err != nil {
		t.Fatal(err)
	}
	data, err := json.MarshalIndent(tree, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	want, err := Parse("f", data)
	if err != nil {
		t.Fatal(err)
	}
	got, err := spec.ParseJSON("f", data)
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
}

func TestParseJSONSaysWhatIsWrongAndWhere(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		`{"version":1,`:                             "f:1:14: this is not JSON",
		`{"version":1,"jobs":[]} {}`:                "f:1:", // and what follows
		"{\"version\":1,\n\"jobs\":[{\"nmae\":1}]}": "f:2:10: ",
		`{"version":1,"version":1,"jobs":[]}`:       `"version" is here twice`,
		`[1]`:                                       `want "version: 1" and "jobs:" at the top`,
		`{"version":1,"jobs":[{"name":"a","schedule":"none","payload":1e999}]}`: "f:1:62: number 1e999 is out of range",
		strings.Repeat("[", 200):        "nested too deeply",
		"{\"version\":1,\"jobs\":\x00}": "control character",
	} {
		_, err := spec.ParseJSON("f", []byte(text), spec.WithoutActions())
		if !errors.Is(err, job.ErrInvalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}

// FuzzParseJSON checks that no request ends the process that answers it.
func FuzzParseJSON(f *testing.F) {
	f.Add(`{"version":1,"jobs":[{"name":"a","schedule":"@hourly","action":{"exec":["/bin/true"]}}]}`)
	f.Add(`{"version":1,"jobs":[{"name":"a","payload":{"deep":[[[{"x":null}]]]}}]}`)
	f.Add("{\"a\":\xff")
	f.Fuzz(func(t *testing.T, text string) {
		file, err := spec.ParseJSON("f", []byte(text), spec.WithoutActions())
		if err != nil {
			if !errors.Is(err, job.ErrInvalid) {
				t.Errorf("%v does not wrap ErrInvalid", err)
			}
			return
		}
		for _, e := range file.Jobs {
			if err := e.Job.Validate(); err != nil {
				t.Errorf("%q: an invalid job was read: %v", text, err)
			}
		}
	})
}
