package reference_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/cronce-io/cronce/client"
	"github.com/cronce-io/cronce/internal/jobfile"
	"github.com/cronce-io/cronce/internal/jobfile/reference"
	"github.com/cronce-io/cronce/internal/jobfile/spec"
	"github.com/cronce-io/cronce/internal/lab/filetest"
	"github.com/cronce-io/cronce/job"
)

// place is a field, with a function that returns a job file in which the field has a value.
type place struct {
	reference.Field
	path string
	file func(value string) string
}

// places returns every field of a job, at any depth.
func places() []place {
	var all []place
	var walk func(f reference.Field, path string, around func(string) string)
	walk = func(f reference.Field, path string, around func(string) string) {
		for _, m := range f.Fields {
			// The file has the other members that it needs, so that only the value of this field can
			// make it invalid.
			file := func(value string) string {
				return around("{" + strings.Join(append(others(f, m), m.Name+": "+value), ", ") + "}")
			}
			name := strings.TrimPrefix(path+"."+m.Name, ".")
			all = append(all, place{m, name, file})
			switch m.Kind {
			case reference.Mapping, reference.TextOr:
				walk(m, name, file)
			case reference.Headers:
				walk(m.Fields[0], name+".X-A", func(value string) string { return file("{X-A: " + value + "}") })
			}
		}
	}
	jobs := reference.Fields()[1]
	walk(jobs, "", func(job string) string { return "version: 1\njobs:\n  - " + job + "\n" })
	return all
}

// others returns the members beside m that the mapping f needs to be valid.
func others(f, m reference.Field) []string {
	var with []string
	way := slices.Contains(f.OneOf, m.Name)
	for _, o := range f.Fields {
		first := len(f.OneOf) > 0 && !way && o.Name == f.OneOf[0]
		if o.Name != m.Name && (o.Required || first) {
			with = append(with, o.Name+": "+o.Example)
		}
	}
	return append(with, m.With...)
}

func parse(text string) (*spec.File, error) { return jobfile.Parse("f.yaml", []byte(text)) }

var offered = regexp.MustCompile(`unknown field ".*": want (.*)`)

// An operator who reads "on_late.after" in a diff finds it in the file under that name.
func TestSettingsInADiffHaveTheNamesOfTheFile(t *testing.T) {
	t.Parallel()
	kinds := map[string]reference.Kind{}
	for _, p := range places() {
		kinds[p.path] = p.Kind
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
	for _, p := range places() {
		in := ""
		if i := strings.LastIndex(p.path, "."); i >= 0 {
			in = p.path[:i]
		}
		known[in] = append(known[in], p.Name)
		switch p.Kind {
		case reference.Mapping, reference.TextOr:
			ask[p.path] = p.file
		case reference.Headers:
			ask[p.path+".X-A"] = func(v string) string { return p.file("{X-A: " + v + "}") }
		}
	}
	if len(ask) < 12 {
		t.Fatalf("only %d mappings", len(ask))
	}
	for path, file := range ask {
		_, err := parse(file("{zzzzzzzzzzzzzzzz: 1}"))
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

func TestExamplesOfTheReferenceAreRight(t *testing.T) {
	t.Parallel()
	schema := compile(t)
	for _, p := range places() {
		text := p.file(p.Example)
		if p.Example == "" {
			t.Errorf("%s has no example", p.path)
		} else if _, err := parse(text); err != nil {
			t.Errorf("%s: %v", p.path, err)
		}
		if err := schema.check(text); err != nil {
			t.Errorf("%s: %v", p.path, err)
		}
	}
}

// A file that sets a field to its default defines the same job as one without the field. This does
// not hold for output and concurrency: Job keeps their zero values, which stand for the defaults.
func TestDefaultsOfTheReferenceAreTrue(t *testing.T) {
	t.Parallel()
	tried := 0
	for _, p := range places() {
		word := regexp.MustCompile(`^[\w/]+`).FindString(p.Default)
		if word == "" || word == "the" {
			continue
		}
		tried++
		with, err := parse(p.file(word))
		without, err2 := parse(strings.Replace(p.file(word), p.Name+": "+word, "", 1))
		if err != nil || err2 != nil {
			t.Errorf("%s: %v, %v", p.path, err, err2)
			continue
		}
		if a, b := with.Jobs[0].Job.WithDefaults(), without.Jobs[0].Job.WithDefaults(); !reflect.DeepEqual(a, b) && p.Name != "output" && p.Name != "concurrency" {
			t.Errorf("%s: %s makes a difference:\n%+v\n%+v", p.path, p.Default, a, b)
		}
	}
	if tried < 10 {
		t.Errorf("only %d defaults", tried)
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
	for _, p := range places() {
		bad := slices.Clone(wrong[p.Kind])
		good := slices.Clone(p.Words)
		if p.Max > 0 && p.Kind == reference.Count {
			bad, good = append(bad, fmt.Sprint(p.Max+1)), append(good, "1", fmt.Sprint(p.Max))
		}
		for _, value := range good {
			if _, err := parse(p.file(value)); err != nil {
				t.Errorf("%s: %v", p.path, err)
			}
			if err := schema.check(p.file(value)); err != nil {
				t.Errorf("%s: %v", p.path, err)
			}
		}
		for _, value := range bad {
			if f, err := parse(p.file(value)); err == nil {
				t.Errorf("%s: %s: the decoder takes it: %v", p.path, value, f)
			}
			if schema.check(p.file(value)) == nil {
				t.Errorf("%s: %s: the schema takes it", p.path, value)
			}
		}
	}
}

// An editor that checks a valid file by the schema shows no error.
func TestTheSchemaTakesEveryFileThatIsRight(t *testing.T) {
	t.Parallel()
	schema := compile(t)
	var paths []string
	for _, pattern := range []string{"../../../examples/*.yaml", "../../../docs/*.yaml", "../testdata/*.yaml"} {
		found, err := filepath.Glob(pattern)
		if err != nil || len(found) == 0 {
			t.Fatalf("%s: %v %v", pattern, found, err)
		}
		paths = append(paths, found...)
	}
	for _, path := range paths {
		text := filetest.Read(t, path)
		if _, err := parse(string(text)); err != nil {
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

// docs/jobs.yaml says that it has every field.
func TestTheAnnotatedFileHasEveryField(t *testing.T) {
	t.Parallel()
	text := filetest.Read(t, "../../../docs/jobs.yaml")
	for _, p := range places() {
		// A header's own name stands for any.
		name := regexp.MustCompile(`(^|[\s{,])` + p.Name + `:(\s|$)`)
		if !name.Match(text) {
			t.Errorf("docs/jobs.yaml does not have %s", p.path)
		}
	}
}

func TestOverlapPoliciesAreExplained(t *testing.T) {
	t.Parallel()
	for _, p := range places() {
		if p.path != "overlap" {
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
