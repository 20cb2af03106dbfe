// Package payload decodes the payloads of slots into Go values, strictly. job.Typed documents the
// rules.
package payload

import (
	"bytes"
	"encoding"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/cronce-io/cronce/internal/codec"
	"github.com/cronce-io/cronce/internal/text/suggest"
)

// Decode decodes a payload into the value that dst points to. Its errors wrap codec.ErrInvalid, and
// name the path of the member that is wrong. If there is no payload, Decode does nothing.
//
// Package encoding/json decodes the payload. A second pass compares the payload with the type. It
// finds what encoding/json accepts and this package does not, and where encoding/json has refused a
// value.
func Decode(payload json.RawMessage, dst any) error {
	if len(payload) == 0 {
		return nil
	}
	err := json.Unmarshal(payload, dst)
	if syntax, ok := errors.AsType[*json.SyntaxError](err); ok {
		return fmt.Errorf("%w payload: not one JSON value: %w, at byte %d", codec.ErrInvalid, err, syntax.Offset)
	}
	r := reader{Decoder: json.NewDecoder(bytes.NewReader(payload)), refused: err != nil}
	r.UseNumber()
	if strict := r.value(reflect.TypeOf(dst).Elem(), false); strict != nil {
		err = strict
	} else if err != nil {
		err = errors.New(strings.TrimPrefix(err.Error(), "json: "))
	}
	if err != nil {
		return fmt.Errorf("%w payload: %s%s", codec.ErrInvalid, r.place(), codec.ClipTo(err.Error(), codec.MaxOldBytes))
	}
	return nil
}

// reader reads a payload, which is valid JSON, and compares it with a type.
type reader struct {
	*json.Decoder

	// refused: encoding/json has refused the payload, so each value is decoded alone to find
	// the one that it refuses.
	refused bool

	path []string // the path of the value that is read, in steps like ".name" and "[3]"
}

// place returns the path for an error, or "" at the top.
func (r *reader) place() string {
	if len(r.path) == 0 {
		return ""
	}
	return strings.TrimPrefix(strings.Join(r.path, ""), ".") + ": "
}

// at reads a value that is a part of the current one.
func (r *reader) at(step string, read func() error) error {
	r.path = append(r.path, step)
	if err := read(); err != nil {
		return err // the path stays: it is the place of the error
	}
	r.path = r.path[:len(r.path)-1]
	return nil
}

var (
	jsonDecodes = reflect.TypeFor[json.Unmarshaler]()
	textDecodes = reflect.TypeFor[encoding.TextUnmarshaler]()
)

// decodesItself reports whether values of the type decode themselves.
func decodesItself(t reflect.Type) bool {
	p := reflect.PointerTo(t)
	return p.Implements(jsonDecodes) || p.Implements(textDecodes)
}

// value reads the next value, which encoding/json decodes into a t. If t is nil, any value is
// right. If quoted is true, the value is inside a string.
func (r *reader) value(t reflect.Type, quoted bool) error {
	for t != nil && t.Kind() == reflect.Pointer && !decodesItself(t) {
		t = t.Elem()
	}
	switch {
	case t == nil, t.Kind() == reflect.Interface && t.NumMethod() == 0:
		return r.composite(nil)
	case decodesItself(t), quoted, t == reflect.TypeFor[[]byte]():
		return r.whole(t, quoted)
	}
	switch t.Kind() {
	case reflect.Struct, reflect.Map, reflect.Slice, reflect.Array:
		return r.composite(t)
	}
	return r.whole(t, false)
}

// whole reads a value whose parts are not compared.
func (r *reader) whole(t reflect.Type, quoted bool) error {
	var raw json.RawMessage
	if err := r.Decode(&raw); err != nil || !r.refused {
		return err
	}
	if quoted && string(raw) != "null" {
		var text string
		if json.Unmarshal(raw, &text) != nil || json.Unmarshal([]byte(text), reflect.New(t).Interface()) != nil {
			return fmt.Errorf("want a string with %s in it", t)
		}
		return nil
	}
	return refusal(json.Unmarshal(raw, reflect.New(t).Interface()), t)
}

// refusal returns an error of encoding/json about one value, without the names of Go structs and
// fields: they mean nothing to the author of the payload.
func refusal(err error, t reflect.Type) error {
	if wrong, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		return fmt.Errorf("got %s, want %s", wrong.Value, t)
	}
	return err
}

// composite reads a value, and compares its parts if it has any.
func (r *reader) composite(t reflect.Type) error {
	token, err := r.Token()
	switch {
	case err != nil:
		return err
	case token == json.Delim('{'):
		return r.object(t)
	case token == json.Delim('['):
		return r.array(t)
	case token == nil || t == nil || !r.refused:
		return nil
	}
	return fmt.Errorf("got %s, want %s", kindOf(token), t)
}

// kindOf names the kind of a value that has no parts.
func kindOf(token json.Token) string {
	switch token.(type) {
	case string:
		return "string"
	case bool:
		return "bool"
	}
	return "number"
}

// object reads the members of an object, and its end.
func (r *reader) object(t reflect.Type) error {
	var fields map[string]field
	if t != nil {
		switch t.Kind() {
		case reflect.Struct:
			fields = fieldsOf(t)
		case reflect.Map:
		default:
			return fmt.Errorf("got object, want %s", t)
		}
	}
	seen := map[string]bool{}
	for r.More() {
		token, err := r.Token()
		if err != nil {
			return err
		}
		name, _ := token.(string) // the name of a member is always a string
		err = r.at(step(name), func() error {
			switch f, known := fields[name]; {
			case seen[name]:
				return errors.New("given twice")
			case t == nil:
				return r.value(nil, false)
			case t.Kind() == reflect.Map:
				if err := r.key(t, name); err != nil {
					return err
				}
				return r.value(t.Elem(), false)
			case !known:
				return unknownMember(name, fields)
			default:
				return r.value(f.typ, f.quoted)
			}
		})
		if err != nil {
			return err
		}
		seen[name] = true
	}
	_, err := r.Token()
	return err
}

func (r *reader) key(t reflect.Type, name string) error {
	if !r.refused || t.Key().Kind() == reflect.String {
		return nil
	}
	one, err := json.Marshal(map[string]any{name: nil})
	if err != nil {
		return err
	}
	alone := reflect.New(reflect.MapOf(t.Key(), reflect.TypeFor[any]()))
	return refusal(json.Unmarshal(one, alone.Interface()), t.Key())
}

// array reads the elements of an array, and its end.
func (r *reader) array(t reflect.Type) error {
	var element reflect.Type
	if t != nil {
		switch t.Kind() {
		case reflect.Slice, reflect.Array:
			element = t.Elem()
		default:
			return fmt.Errorf("got array, want %s", t)
		}
	}
	for i := 0; r.More(); i++ {
		if t != nil && t.Kind() == reflect.Array && i == t.Len() {
			return fmt.Errorf("too many elements, want %d", t.Len())
		}
		if err := r.at("["+strconv.Itoa(i)+"]", func() error { return r.value(element, false) }); err != nil {
			return err
		}
	}
	_, err := r.Token()
	return err
}

// step returns the step of a path to a member. A name that would be ambiguous there is quoted.
func step(name string) string {
	if name == "" || strings.ContainsFunc(name, func(c rune) bool { return c <= ' ' || strings.ContainsRune(`.[]":`, c) || !strconv.IsPrint(c) }) {
		return "." + strconv.Quote(name)
	}
	return "." + name
}

func unknownMember(name string, fields map[string]field) error {
	names := slices.Sorted(maps.Keys(fields))
	switch near := suggest.Nearest(name, names); {
	case near != "":
		return fmt.Errorf("unknown member: did you mean %q?", near)
	case len(names) == 0:
		return errors.New("unknown member: want none")
	}
	const most = 10
	if more := len(names) - most; more > 0 {
		return fmt.Errorf("unknown member: want one of %s and %d more", strings.Join(names[:most], ", "), more)
	}
	return fmt.Errorf("unknown member: want one of %s", strings.Join(names, ", "))
}
