package reference_test

import (
	"fmt"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/cronce-io/cronce/client"
	"github.com/cronce-io/cronce/internal/jobfile"
	"github.com/cronce-io/cronce/internal/jobfile/reference"
	"github.com/cronce-io/cronce/internal/lab/filetest"
	"github.com/cronce-io/cronce/internal/lab/jobfiletest"
	"github.com/cronce-io/cronce/job"
)

var offered = regexp.MustCompile(`unknown field ".*": want (.*)`)

// An operator who reads "on_late.after" in a diff finds it in the file under that name.
func TestSettingsInADiffHaveTheNamesOfTheFile(t *testing.T) {
	t.Parallel()
	kinds := map[string]reference.Kind{}
	for _, p := range jobfiletest.Places() {
		kinds[p.Path] = p.Kind
	}
	f, err := jobfile.Load("../../../docs/jobs.yaml") // it has every field
	if err != nil {
		t.Fatal(err)
	}
	named := map[string]bool{}
	for _, j := range f.Jobs {
		settings, err := client.Describe(j.Job)
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range settings {
			named[s.Name] = true
			// The members of a value, such as a payload, belong to the field of the value.
			field := s.Name
			for kinds[field] == "" && strings.Contains(field, ".") {
				field = field[:strings.LastIndex(field, ".")]
			}
			if kind := kinds[field]; kind == "" || kind == reference.Mapping && field != s.Name {
				t.Errorf("a diff names %q, which is no field of the file", s.Name)
			}
		}
	}
	if !named["on_late.after"] || !named["retry.attempts"] {
		t.Errorf("%v: the file has on_late.after and retry.attempts", slices.Sorted(maps.Keys(named)))
	}
}

// The error about an unknown field lists the fields that the decoder reads. The reference has the
// same.
func TestTheReferenceHasTheFieldsThatAreRead(t *testing.T) {
	t.Parallel()
	known := map[string][]string{"": {}} // by the path of their mapping
	ask := map[string]func(string) string{"": func(v string) string { return "version: 1\njobs:\n  - " + v }}
	for _, p := range jobfiletest.Places() {
		in := ""
		if i := strings.LastIndex(p.Path, "."); i >= 0 {
			in = p.Path[:i]
		}
		known[in] = append(known[in], p.Name)
		switch p.Kind {
		case reference.Mapping, reference.TextOr:
			ask[p.Path] = p.File
		case reference.Headers:
			ask[p.Path+".X-A"] = func(v string) string { return p.File("{X-A: " + v + "}") }
		}
	}
	if len(ask) < 12 {
		t.Fatalf("only %d mappings", len(ask))
	}
	for path, file := range ask {
		_, err := jobfiletest.Parse(file("{zzzzzzzzzzzzzzzz: 1}"))
		m := offered.FindStringSubmatch(fmt.Sprint(err))
		if m == nil {
			t.Errorf("%s: an unknown field gives %v", path, err)
			continue
		}
		read := strings.FieldsFunc(strings.ReplaceAll(m[1], " or ", ", "), func(r rune) bool { return strings.ContainsRune(", ", r) })
		slices.Sort(read)
		slices.Sort(known[path])
		if !slices.Equal(read, known[path]) {
			t.Errorf("in %q the decoder reads %q, and the reference has %q", path, read, known[path])
		}
	}
}

// A file that sets a field to its default defines the same job as one without the field. This does
// not hold for output and concurrency: Job keeps their zero values, which stand for the defaults.
func TestDefaultsOfTheReferenceAreTrue(t *testing.T) {
	t.Parallel()
	tried := 0
	for _, p := range jobfiletest.Places() {
		word := regexp.MustCompile(`^[\w/]+`).FindString(p.Default)
		if word == "" || word == "the" {
			continue
		}
		tried++
		with, err := jobfiletest.Parse(p.File(word))
		without, err2 := jobfiletest.Parse(strings.Replace(p.File(word), p.Name+": "+word, "", 1))
		if err != nil || err2 != nil {
			t.Errorf("%s: %v, %v", p.Path, err, err2)
			continue
		}
		if a, b := with.Jobs[0].Job.WithDefaults(), without.Jobs[0].Job.WithDefaults(); !reflect.DeepEqual(a, b) && p.Name != "output" && p.Name != "concurrency" {
			t.Errorf("%s: %s makes a difference:\n%+v\n%+v", p.Path, p.Default, a, b)
		}
	}
	if tried < 10 {
		t.Errorf("only %d defaults", tried)
	}
}

// docs/jobs.yaml says that it has every field.
func TestTheAnnotatedFileHasEveryField(t *testing.T) {
	t.Parallel()
	text := filetest.Read(t, "../../../docs/jobs.yaml")
	for _, p := range jobfiletest.Places() {
		// A header's own name stands for any.
		name := regexp.MustCompile(`(^|[\s{,])` + p.Name + `:(\s|$)`)
		if !name.Match(text) {
			t.Errorf("docs/jobs.yaml does not have %s", p.Path)
		}
	}
}

func TestOverlapPoliciesAreExplained(t *testing.T) {
	t.Parallel()
	for _, p := range jobfiletest.Places() {
		if p.Path != "overlap" {
			continue
		}
		for _, policy := range job.Overlaps() {
			if !strings.Contains(p.About, "`"+string(policy)+"`") {
				t.Errorf("the reference does not explain overlap: %s", policy)
			}
		}
		return
	}
	t.Error("the reference has no field overlap")
}
