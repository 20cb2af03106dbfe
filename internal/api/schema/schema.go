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

	// Shapes has the types that describe other types. A type that writes its own JSON and is not
	// among them is any object.
	Shapes map[reflect.Type]reflect.Type

	// Named receives the schemas of the structs that have a name, and others refer to them. Nil:
	// each struct is described in place.
	Named map[string]Object

	types map[string]reflect.Type // those of the structs in Named
}

// Of returns the schema of a type.
func (b *Builder) Of(t reflect.Type) Object {
	if other := b.Shapes[t]; other != nil {
		return b.shape(other)
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
	name := nameOf(t)
	if name == "" || b.Named == nil {
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
	return Object{"$ref": "#/components/schemas/" + name}
}

// nameOf returns the name of a struct's schema: JobRowPage for Page[path.JobRow], and Job for jobShape.
// It returns "" if the struct has no name.
func nameOf(t reflect.Type) string {
	name := t.Name()
	if base, of, ok := strings.Cut(name, "["); ok {
		name = strings.TrimSuffix(of[strings.LastIndexByte(of, '.')+1:], "]") + base
	}
	if name == "" {
		return ""
	}
	return strings.TrimSuffix(strings.ToUpper(name[:1])+name[1:], "Shape")
}

func (b *Builder) members(t reflect.Type) Object {
	properties, required := Object{}, []string{}
	for _, f := range reflect.VisibleFields(t) {
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		if name == "" || name == "-" { // an embedded struct, whose fields follow, or no member
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
	o := Object{"type": "object", "properties": properties, "required": required}
	if b.Closed {
		o["additionalProperties"] = false
	}
	return o
}
