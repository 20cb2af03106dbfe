// Package jobfiletest has a job file for each field of the reference.
package jobfiletest

import (
	"slices"
	"strings"

	"github.com/cronce-io/cronce/internal/jobfile"
	"github.com/cronce-io/cronce/internal/jobfile/reference"
	"github.com/cronce-io/cronce/internal/jobfile/spec"
)

// Place is a field, with a function that returns a job file in which the field has a value.
type Place struct {
	reference.Field
	Path string
	File func(value string) string
}

// Places returns every field of a job, at any depth.
func Places() []Place {
	var all []Place
	var walk func(f reference.Field, path string, around func(string) string)
	walk = func(f reference.Field, path string, around func(string) string) {
		for _, m := range f.Fields {
			// The file has the other members that it needs, so that only the value of this field can
			// make it invalid.
			file := func(value string) string {
				return around("{" + strings.Join(append(others(f, m), m.Name+": "+value), ", ") + "}")
			}
			name := strings.TrimPrefix(path+"."+m.Name, ".")
			all = append(all, Place{m, name, file})
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

// Parse reads the text of a job file.
func Parse(text string) (*spec.File, error) { return jobfile.Parse("f.yaml", []byte(text)) }
