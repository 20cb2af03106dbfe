package alertbody

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"text/template"
	"text/template/parse"
	"time"
	"unicode/utf8"

	"github.com/cronce-io/cronce/internal/codec"
)

const (
	// MaxTemplate bounds the text of a template, in bytes.
	MaxTemplate = 8 << 10

	// MaxBody bounds the result of a template, and of each function that could make a text much
	// longer, in bytes.
	MaxBody = 64 << 10
)

// Template writes the body of alerts. It is safe for concurrent use.
type Template struct{ t *template.Template }

// TemplateError is a mistake in a template. Line and Column count from 1, columns in bytes.
// They are 0 if they are not known.
type TemplateError struct {
	Line, Column int
	Message      string
}

func (e *TemplateError) Error() string {
	switch {
	case e.Line == 0:
		return e.Message
	case e.Column == 0:
		return fmt.Sprintf("line %d: %s", e.Line, e.Message)
	}
	return fmt.Sprintf("line %d, column %d: %s", e.Line, e.Column, e.Message)
}

// ParseTemplate reads a template. Its errors are TemplateErrors.
func ParseTemplate(text string) (*Template, error) {
	if len(text) > MaxTemplate {
		return nil, &TemplateError{Message: fmt.Sprintf("it has %d bytes, at most %d", len(text), MaxTemplate)}
	}
	t, err := template.New(templateName).Funcs(functions).Option("missingkey=error").Parse(text)
	if err != nil {
		mistake := located(err)
		if mistake.Message == "unexpected EOF" {
			mistake.Message = "the template ends before an {{if}} or a {{with}} has its {{end}}"
			mistake.Line = min(mistake.Line, 1+strings.Count(strings.TrimRight(text, "\n"), "\n"))
		}
		return nil, mistake
	}
	if t.Tree == nil || parse.IsEmptyTree(t.Root) {
		return nil, &TemplateError{Message: "it is empty: want text like {\"text\": {{json .Title}}}"}
	}
	if len(t.Templates()) > 1 {
		return nil, &TemplateError{Message: "{{define}} and {{block}} are not supported: write one template"}
	}
	if err := withoutLoops(t.Root, text); err != nil {
		return nil, err
	}
	return &Template{t}, nil
}

const templateName = "template"

// Execute returns the body of the alert. Its errors are TemplateErrors.
func (t *Template) Execute(d Data) ([]byte, error) {
	out := &limited{}
	if err := t.t.Execute(out, d.Clean()); err != nil {
		return nil, located(err)
	}
	return []byte(out.String()), nil
}

// limited is a text of at most MaxBody bytes.
type limited struct{ strings.Builder }

var errLong = fmt.Errorf("the result has more than %d bytes", MaxBody)

func (l *limited) Write(p []byte) (int, error) {
	if l.Len()+len(p) > MaxBody {
		return 0, errLong
	}
	return l.Builder.Write(p)
}

// CheckTemplate returns the first mistake in a template: in its text, or in what it writes
// about alerts of these kinds. If the result is JSON for a plain error, it must also be JSON
// for an error that is hard to quote.
func CheckTemplate(text string, kinds ...string) error {
	t, err := ParseTemplate(text)
	if err != nil {
		return err
	}
	for _, kind := range kinds {
		plain, err := t.Execute(sample(kind, "exit status 1", "line 1"))
		if err != nil {
			return err
		}
		hostile, err := t.Execute(sample(kind, "\"quotes\", \\ and\na 'break' </script>", "{\"a\": \"b\"}\n\t\\x"))
		switch {
		case err != nil:
			return err
		case strings.TrimSpace(string(plain)) == "":
			return &TemplateError{Message: fmt.Sprintf("it writes nothing about an alert of the kind %q", kind)}
		case json.Valid(plain) && !json.Valid(hostile):
			return &TemplateError{Message: "what it writes is not JSON any more if the error or the output has quotes or line breaks: write {{json .Error}} without quotes around it, or \"{{js .Error}}\""}
		case !json.Valid(plain) && meansJSON(text):
			return &TemplateError{Message: fmt.Sprintf("what it writes about an alert of the kind %q begins like JSON, and is not: %s", kind, notJSON(plain))}
		}
	}
	return nil
}

// meansJSON reports whether the text begins like a JSON object or array.
func meansJSON(text string) bool {
	text = strings.TrimSpace(text)
	return strings.HasPrefix(text, "[") || strings.HasPrefix(text, "{") && !strings.HasPrefix(text, "{{")
}

// notJSON says where the data stops being JSON.
func notJSON(data []byte) string {
	err := json.Unmarshal(data, new(json.RawMessage))
	syntax, ok := errors.AsType[*json.SyntaxError](err)
	if !ok {
		return fmt.Sprint(err)
	}
	end := min(int(syntax.Offset), len(data))
	return fmt.Sprintf("%v, after %q", err, strings.ToValidUTF8(string(data[max(0, end-30):end]), ""))
}

// sample returns an alert with which to try a template.
func sample(kind, err, output string) Data {
	at := time.Date(2026, 11, 21, 7, 0, 0, 0, time.UTC)
	d := Data{
		Alert: kind, Namespace: "cronce", Job: "report", Slot: "report:2026-11-21T07:00:00Z", Time: at.Add(4 * time.Second), Instant: at,
		Attempt: 3, Fence: 711, Node: "web1-711-0kq1-x2", Error: err, Output: output, Key: "key",
	}
	switch kind {
	case Missed:
		d.Count, d.Last = 12, at.Add(12*time.Hour)
	case Recovered:
		d.Error, d.Since = "", "report:2026-11-21T06:00:00Z"
	case Succeeded:
		d.Error = ""
	}
	return d
}

// withoutLoops refuses loops and nested templates, so that the time of a template grows only with
// its size.
func withoutLoops(n parse.Node, text string) error {
	refuse := func(what string) error {
		line, column := position(text, int(n.Position()))
		return &TemplateError{line, column, what + " is not supported: the fields of an alert are single values"}
	}
	branch := func(b *parse.BranchNode) error {
		for _, l := range []*parse.ListNode{b.List, b.ElseList} {
			if l == nil {
				continue
			}
			if err := withoutLoops(l, text); err != nil {
				return err
			}
		}
		return nil
	}
	switch n := n.(type) {
	case *parse.ListNode:
		for _, inner := range n.Nodes {
			if err := withoutLoops(inner, text); err != nil {
				return err
			}
		}
	case *parse.IfNode:
		return branch(&n.BranchNode)
	case *parse.WithNode:
		return branch(&n.BranchNode)
	case *parse.RangeNode:
		return refuse("{{range}}")
	case *parse.TemplateNode:
		return refuse("{{template}}")
	}
	return nil
}

// position returns the line and the column of an offset, from 1.
func position(text string, offset int) (line, column int) {
	before := text[:min(offset, len(text))]
	return 1 + strings.Count(before, "\n"), offset - strings.LastIndexByte(before, '\n')
}

var templatePosition = regexp.MustCompile(`^template: ` + templateName + `:(\d+)(?::(\d+))?: (?s:(.*))$`)

// executing matches what text/template writes before the cause of a failure.
var executing = regexp.MustCompile(`^executing "` + templateName + `" at (<[^\n]*?>): `)

// located returns an error of text/template with its line and column.
func located(err error) *TemplateError {
	m := templatePosition.FindStringSubmatch(err.Error())
	if m == nil {
		return &TemplateError{Message: err.Error()}
	}
	line, _ := strconv.Atoi(m[1])
	column, _ := strconv.Atoi(m[2])
	if column > 0 {
		column++ // text/template counts columns from 0
	}
	message := executing.ReplaceAllString(m[3], "$1: ")
	message = strings.ReplaceAll(message, " in type alertbody.Data", ": want one of "+fieldNames)
	return &TemplateError{line, column, strings.ReplaceAll(message, "\n", " ")}
}

// fieldNames are the fields that a template may use.
const fieldNames = ".Alert, .Namespace, .Job, .Slot, .Title, .Time, .Instant, .Attempt, .Fence, .Node, .Error, .Output, .Count, .Last, .Since, .Key"

// functions are those of text/template, with bounded results, and a few of our own.
var functions = template.FuncMap{
	"json": func(v any) (string, error) {
		data, err := codec.Marshal(v)
		return bounded(string(data), err)
	},
	// js of text/template escapes quotes in a way that JSON does not know.
	"js": func(args ...any) (string, error) {
		data, err := codec.Marshal(fmt.Sprint(args...))
		if err != nil {
			return "", err
		}
		return bounded(string(data[1:len(data)-1]), nil)
	},
	"head":  func(n int, s string) string { return head(s, max(n, 0), utf16) },
	"tail":  func(n int, s string) string { return tail(s, max(n, 0), utf16) },
	"upper": strings.ToUpper,
	"lower": strings.ToLower,
	"printf": func(format string, args ...any) (string, error) {
		if wide.MatchString(format) {
			return "", errors.New("printf: want a width of at most 999, without *")
		}
		return bounded(fmt.Sprintf(format, args...), nil)
	},
	"print":    func(args ...any) (string, error) { return bounded(fmt.Sprint(args...), nil) },
	"println":  func(args ...any) (string, error) { return bounded(fmt.Sprintln(args...), nil) },
	"html":     func(args ...any) (string, error) { return bounded(template.HTMLEscaper(args...), nil) },
	"urlquery": func(args ...any) (string, error) { return bounded(template.URLQueryEscaper(args...), nil) },
}

// wide finds a width or a precision of a format that would allocate much.
var wide = regexp.MustCompile(`%[^a-zA-Z%]*(\d{4,}|\*)`)

func bounded(s string, err error) (string, error) {
	switch {
	case err != nil:
		return "", err
	case len(s) > MaxBody:
		return "", errLong
	case !utf8.ValidString(s):
		return strings.ToValidUTF8(s, "\uFFFD"), nil
	}
	return s, nil
}
