package docs_test

import (
	"bytes"
	"fmt"
	"slices"
	"strings"

	"github.com/cronce-io/cronce/internal/jobfile/reference"
)

// fieldTables is the reference of the job file as tables: one for the top of the
// file, one for a job, and one for each mapping in it, depth first.
func fieldTables() []byte {
	var w bytes.Buffer
	fieldTable(&w, "The file", "", reference.Fields(), nil)
	return w.Bytes()
}

func fieldTable(w *bytes.Buffer, title, path string, fields []reference.Field, oneOf []string) {
	fmt.Fprintf(w, "### %s\n\n", title)
	if len(oneOf) > 0 {
		fmt.Fprintf(w, "Exactly one of `%s`.\n\n", strings.Join(oneOf, "`, `"))
	}
	fmt.Fprintf(w, "| field | holds | default | meaning |\n|---|---|---|---|\n")
	for _, f := range fields {
		fmt.Fprintf(w, "| `%s` | %s | %s | %s Example: `%s` |\n", f.Name, cell(holds(f)), cell(byDefault(f)), cell(about(f, fields)), cell(f.Example))
	}
	w.WriteByte('\n')
	for _, f := range fields {
		below := strings.TrimPrefix(path+"."+f.Name, ".")
		if f.Like != "" {
			if own := ownFields(f, fields); len(own) > 0 {
				fieldTable(w, "`"+below+"`, besides the fields of `"+f.Like+"`", below, own, nil)
			}
			continue
		}
		switch f.Kind {
		case reference.Jobs:
			fieldTable(w, "A job", "", f.Fields, f.OneOf)
		case reference.Mapping, reference.TextOr:
			fieldTable(w, "`"+below+"`", below, f.Fields, f.OneOf)
		case reference.Headers:
			fieldTable(w, "A value of `"+below+"`", below, f.Fields[0].Fields, f.Fields[0].OneOf)
		}
	}
}

// ownFields returns the members that the field has and the one that it is like has not.
func ownFields(f reference.Field, fields []reference.Field) []reference.Field {
	named := func(name string) func(reference.Field) bool {
		return func(f reference.Field) bool { return f.Name == name }
	}
	like := fields[slices.IndexFunc(fields, named(f.Like))]
	return slices.DeleteFunc(slices.Clone(f.Fields), func(m reference.Field) bool { return slices.ContainsFunc(like.Fields, named(m.Name)) })
}

// about is what the field means, and where its members are explained.
func about(f reference.Field, fields []reference.Field) string {
	if f.Like == "" {
		return f.About
	}
	text := f.About + " Its fields are those of `" + f.Like + "`"
	for _, m := range ownFields(f, fields) {
		text += ", and `" + m.Name + "`"
	}
	return text + "."
}

// holds is the kind, its words and its limits.
func holds(f reference.Field) string {
	s := string(f.Kind)
	if f.Kind == reference.Word {
		s = "`" + strings.Join(f.Words, "`, `") + "`"
	}
	if f.Max > 0 && f.Kind == reference.Count {
		s += fmt.Sprintf(", 1 to %d", f.Max)
	} else if f.Max > 0 {
		s += fmt.Sprintf(", at most %d", f.Max)
	}
	if f.Limit != "" {
		s += ": " + f.Limit
	}
	return s
}

func byDefault(f reference.Field) string {
	switch {
	case f.Required:
		return "required"
	case f.Default != "":
		return f.Default
	}
	return "none"
}

// cell keeps a bar from ending it.
func cell(s string) string { return strings.ReplaceAll(s, "|", `\|`) }
