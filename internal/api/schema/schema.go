// Package schema describes Go types as JSON schemas, and decodes requests into them, for the NATS
// service and the HTTP API.
package schema

import (
	"encoding/json"
	"reflect"
	"strings"
	"time"
)

// Object is a JSON object.
type Object = map[string]any

// Text returns the JSON schema of T as JSON, without references. Structs are closed: they
// have no other members.
func Text[T any]() string {
	data, err := json.Marshal((&Builder{Closed: true}).Of(reflect.TypeFor[T]()))
	if err != nil {
		return "{}" // cannot happen: maps and strings can always be encoded
	}
	return string(data)
}

// Builder describes types that JSON can hold. The tag "doc" of a field describes a member, and the
// tag "enum" lists its values, separated by commas. The zero value makes open schemas without
// references.
type Builder struct {
	// Closed forbids other members in structs.
	Closed bool

	// Instead returns the type that describes t, for types that write their own JSON. It
	// returns t for all others. Nil: a type that writes its own JSON is any object.
	Instead func(t reflect.Type) reflect.Type

	// Name returns the name under which a struct is described once, in Named; others refer to it
	// as Prefix + name. "": the struct is described in place. Nil: all structs are.
	Name   func(t reflect.Type) string
	Prefix string
	Named  map[string]Object

	types map[string]reflect.Type
}

// Of returns the schema of a type.
func (b *Builder) Of(t reflect.Type) Object {
	if b.Instead != nil {
		if other := b.Instead(t); other != t {
			return b.shape(other)
		}
	}
	switch {
	case t == reflect.TypeFor[time.Time]():
		return Object{"type": "string", "format": "date-time"}
	case t == reflect.TypeFor[json.RawMessage]():
		return Object{}
	case t.Implements(reflect.TypeFor[json.Marshaler]()):
		return Object{"type": "object"} // docs/protocol.md has its members
	}
	return b.shape(t)
}

func (b *Builder) shape(t reflect.Type) Object {
	switch t.Kind() {
	case reflect.Pointer:
		return b.Of(t.Elem())
	case reflect.Bool:
		return Object{"type": "boolean"}
	case reflect.Int, reflect.Int64, reflect.Uint64:
		return Object{"type": "integer"}
	case reflect.Float64:
		return Object{"type": "number"}
	case reflect.Slice:
		return Object{"type": "array", "items": b.Of(t.Elem())}
	case reflect.Map:
		return Object{"type": "object", "additionalProperties": b.Of(t.Elem())}
	case reflect.Struct:
		return b.refer(t)
	case reflect.Interface:
		return Object{}
	}
	return Object{"type": "string"}
}

// refer describes a struct, or refers to its description.
func (b *Builder) refer(t reflect.Type) Object {
	name := ""
	if b.Name != nil {
		name = b.Name(t)
	}
	if name == "" {
		return b.members(t)
	}
	if b.types == nil {
		b.types = map[string]reflect.Type{}
	}
	if other := b.types[name]; other != nil && other != t {
		panic("schema: " + t.String() + " and " + other.String() + " have the same name " + name)
	}
	if b.Named[name] == nil {
		b.types[name], b.Named[name] = t, Object{} // so that a type that contains itself ends
		b.Named[name] = b.members(t)
	}
	return Object{"$ref": b.Prefix + name}
}

func (b *Builder) members(t reflect.Type) Object {
	properties, required := Object{}, []string{}
	var add func(t reflect.Type)
	add = func(t reflect.Type) {
		for i := range t.NumField() {
			f := t.Field(i)
			name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
			if f.Anonymous && name == "" {
				add(f.Type)
				continue
			}
			if name == "-" || !f.IsExported() {
				continue
			}
			property := b.Of(f.Type)
			if doc := f.Tag.Get("doc"); doc != "" {
				property["description"] = doc
			}
			if enum := f.Tag.Get("enum"); enum != "" {
				property["enum"] = strings.Split(enum, ",")
			}
			properties[name] = property
			if options == "" {
				required = append(required, name)
			}
		}
	}
	add(t)
	o := Object{"type": "object", "properties": properties, "required": required}
	if b.Closed {
		o["additionalProperties"] = false
	}
	return o
}
