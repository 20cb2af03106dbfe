package python

import (
	"encoding/json"
	"strconv"
	"strings"
)

// Kind is the kind of a value.
type Kind int

const (
	Opaque Kind = iota // not a literal: see Value.Source
	None
	Bool
	Int
	Float
	Text
	List // or a tuple or a set
	Dict
	Name // a variable, perhaps with dots
	Call // a call of a name
)

// Value is an expression.
type Value struct {
	Kind Kind
	Line int // from 1
	End  int // the line of its last part

	// Source is the source of the expression, on one line, cut after 100 bytes.
	Source string

	// Text is the text, the name, the name that is called, or the number as JSON.
	Text string
	Bool bool

	// Items are those of a list, the values of a dict in the order of Keys, or the positional
	// arguments of a call.
	Items []Value
	Keys  []Value

	// Args are the named arguments of a call. Starred reports that there are * or ** arguments.
	Args    []Arg
	Starred bool
}

// Arg is a named argument of a call.
type Arg struct {
	Name  string
	Value Value
}

// Arg returns a named argument.
func (v Value) Arg(name string) (Value, bool) {
	for _, a := range v.Args {
		if a.Name == name {
			return a.Value, true
		}
	}
	return Value{}, false
}

// Last returns the part of the called name after its last dot.
func (v Value) Last() string { return v.Text[strings.LastIndex(v.Text, ".")+1:] }

// Int returns a whole number.
func (v Value) Int() (int, bool) {
	if v.Kind != Int {
		return 0, false
	}
	n, err := strconv.Atoi(v.Text)
	return n, err == nil
}

// Number returns a number.
func (v Value) Number() (float64, bool) {
	if v.Kind != Int && v.Kind != Float {
		return 0, false
	}
	n, err := strconv.ParseFloat(v.Text, 64)
	return n, err == nil
}

// JSON returns the value as Python's json module writes it. It returns false if a part of it is not
// a literal, or if a dict has a key that is not a string.
func (v Value) JSON() (json.RawMessage, bool) {
	var b strings.Builder
	if !v.json(&b) || !json.Valid([]byte(b.String())) {
		return nil, false
	}
	return json.RawMessage(b.String()), true
}

func (v Value) json(b *strings.Builder) bool {
	switch v.Kind {
	case None:
		b.WriteString("null")
	case Bool:
		b.WriteString(strconv.FormatBool(v.Bool))
	case Int, Float:
		b.WriteString(v.Text)
	case Text:
		quoted, err := json.Marshal(v.Text)
		b.Write(quoted)
		return err == nil
	case List:
		for i, item := range v.Items {
			b.WriteString([]string{"[", ","}[min(i, 1)])
			if !item.json(b) {
				return false
			}
		}
		if len(v.Items) == 0 {
			b.WriteByte('[')
		}
		b.WriteByte(']')
	case Dict:
		for i, item := range v.Items {
			b.WriteString([]string{"{", ","}[min(i, 1)])
			if v.Keys[i].Kind != Text || !v.Keys[i].json(b) {
				return false
			}
			b.WriteByte(':')
			if !item.json(b) {
				return false
			}
		}
		if len(v.Items) == 0 {
			b.WriteByte('{')
		}
		b.WriteByte('}')
	default:
		return false
	}
	return true
}

// formatFloat returns a number as JSON.
func formatFloat(x float64) string {
	b, err := json.Marshal(x)
	if err != nil {
		return "0"
	}
	return string(b)
}

// Literal parses the text of a value as an expression: a configuration may contain "3" for 3, and
// "true" for True.
func Literal(v Value) Value {
	source := v.Text
	switch strings.ToLower(source) {
	case "true", "false", "none":
		source = strings.ToUpper(source[:1]) + strings.ToLower(source[1:])
	}
	p := parser{source: source, tokens: scan(source)}
	read := p.expression()
	read.Line, read.Source = v.Line, v.Source
	return read
}
