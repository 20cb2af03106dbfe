package docs_test

import (
	"bytes"
	"fmt"
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
		fmt.Fprintf(w, "| `%s` | %s | %s | %s Example: `%s` |\n", f.Name, cell(holds(f)), cell(byDefault(f)), cell(about(f)), cell(f.Example))
	}
	w.WriteByte('\n')
	for _, f := range fields {
		if f.Like != "" {
			continue
		}
		below := strings.TrimPrefix(path+"."+f.Name, ".")
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

// about is what the field means, and where its members are explained.
func about(f reference.Field) string {
	if f.Like == "" {
		return f.About
	}
	return f.About + " Its fields are those of `" + f.Like + "`."
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
