package python

import (
	"encoding/json"
	"slices"
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
	Args    Arguments
	Starred bool
}

// Arg is a named argument of a call.
type Arg struct {
	Name  string
	Value Value
}

// DictOf returns a dict with the arguments.
func DictOf(args ...Arg) Value {
	d := Value{Kind: Dict}
	for _, a := range args {
		d.Keys, d.Items = append(d.Keys, Value{Kind: Text, Text: a.Name}), append(d.Items, a.Value)
	}
	return d
}

// Arguments are named arguments, in their order.
type Arguments []Arg

// Get returns the value of an argument, or false if there is none of that name.
func (a Arguments) Get(name string) (Value, bool) {
	if i := slices.IndexFunc(a, func(arg Arg) bool { return arg.Name == name }); i >= 0 {
		return a[i].Value, true
	}
	return Value{}, false
}

// Set replaces the value of an argument, or adds one.
func (a *Arguments) Set(name string, v Value) {
	if i := slices.IndexFunc(*a, func(arg Arg) bool { return arg.Name == name }); i >= 0 {
		(*a)[i].Value = v
		return
	}
	*a = append(*a, Arg{name, v})
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

// JSON returns the value as JSON. It returns false if a part of it is not a literal, or if a dict has
// a key that is not a string.
func (v Value) JSON() (json.RawMessage, bool) {
	plain, ok := v.plain()
	if !ok {
		return nil, false
	}
	data, err := json.Marshal(plain)
	return data, err == nil
}

// plain returns the value in the types of encoding/json.
func (v Value) plain() (plain any, ok bool) {
	switch v.Kind {
	case None:
		return nil, true
	case Bool:
		return v.Bool, true
	case Int, Float:
		return json.Number(v.Text), true
	case Text:
		return v.Text, true
	case List:
		list := make([]any, len(v.Items))
		for i, item := range v.Items {
			if list[i], ok = item.plain(); !ok {
				return nil, false
			}
		}
		return list, true
	case Dict:
		dict := make(map[string]any, len(v.Items))
		for i, item := range v.Items {
			key := v.Keys[i]
			if dict[key.Text], ok = item.plain(); !ok || key.Kind != Text {
				return nil, false
			}
		}
		return dict, true
	}
	return nil, false
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
	p := parser{Program: Parse(source)}
	read := p.expression()
	read.Line, read.Source = v.Line, v.Source
	return read
}
