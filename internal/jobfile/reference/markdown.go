package reference

import (
	"bytes"
	"fmt"
	"strings"
)

// Markdown is the reference of the job file as tables: one for the top of the
// file, one for a job, and one for each mapping in it, depth first.
func Markdown() []byte {
	var w bytes.Buffer
	table(&w, "The file", "", Fields(), nil)
	return w.Bytes()
}

func table(w *bytes.Buffer, title, path string, fields []Field, oneOf []string) {
	fmt.Fprintf(w, "### %s\n\n", title)
	if len(oneOf) > 0 {
		fmt.Fprintf(w, "Exactly one of `%s`.\n\n", strings.Join(oneOf, "`, `"))
	}
	fmt.Fprintf(w, "| field | holds | default | meaning |\n|---|---|---|---|\n")
	for _, f := range fields {
		fmt.Fprintf(w, "| `%s` | %s | %s | %s Example: `%s` |\n", f.Name, cell(holds(f)), cell(byDefault(f)), cell(f.About), cell(f.Example))
	}
	w.WriteByte('\n')
	for _, f := range fields {
		below := strings.TrimPrefix(path+"."+f.Name, ".")
		switch f.Kind {
		case Jobs:
			table(w, "A job", "", f.Fields, f.OneOf)
		case Mapping, TextOr:
			table(w, "`"+below+"`", below, f.Fields, f.OneOf)
		case Headers:
			table(w, "A value of `"+below+"`", below, f.Fields[0].Fields, f.Fields[0].OneOf)
		}
	}
}

// holds is the kind, its words and its limits.
func holds(f Field) string {
	s := string(f.Kind)
	if f.Kind == Word {
		s = "`" + strings.Join(f.Words, "`, `") + "`"
	}
	if f.Max > 0 && f.Kind == Count {
		s += fmt.Sprintf(", 1 to %d", f.Max)
	} else if f.Max > 0 {
		s += fmt.Sprintf(", at most %d", f.Max)
	}
	if f.Limit != "" {
		s += ": " + f.Limit
	}
	return s
}

func byDefault(f Field) string {
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
