package api

import (
	"encoding/json"
	"reflect"
	"strings"
	"time"
)

// schema is the JSON schema of a type that is sent: structs of what JSON has, times
// and any JSON. The tag "doc" describes a member.
func schema[T any]() string {
	data, err := json.Marshal(describe(reflect.TypeFor[T]()))
	if err != nil {
		return "{}" // maps and strings always can be
	}
	return string(data)
}

type object = map[string]any

func describe(t reflect.Type) object {
	switch {
	case t == reflect.TypeFor[time.Time]():
		return object{"type": "string", "format": "date-time"}
	case t == reflect.TypeFor[json.RawMessage]():
		return object{}
	case t.Implements(reflect.TypeFor[json.Marshaler]()):
		return object{"type": "object"} // docs/protocol.md has its members
	}
	switch t.Kind() {
	case reflect.Pointer:
		return describe(t.Elem())
	case reflect.Bool:
		return object{"type": "boolean"}
	case reflect.Int, reflect.Int64, reflect.Uint64:
		return object{"type": "integer"}
	case reflect.Float64:
		return object{"type": "number"}
	case reflect.Slice:
		return object{"type": "array", "items": describe(t.Elem())}
	case reflect.Map:
		return object{"type": "object", "additionalProperties": describe(t.Elem())}
	case reflect.Struct:
		return members(t)
	}
	return object{"type": "string"}
}

func members(t reflect.Type) object {
	properties, required := object{}, []string{}
	var add func(t reflect.Type)
	add = func(t reflect.Type) {
		for i := range t.NumField() {
			f := t.Field(i)
			if f.Anonymous {
				add(f.Type)
				continue
			}
			name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
			if name == "-" {
				continue
			}
			property := describe(f.Type)
			if doc := f.Tag.Get("doc"); doc != "" {
				property["description"] = doc
			}
			properties[name] = property
			if options == "" {
				required = append(required, name)
			}
		}
	}
	add(t)
	return object{"type": "object", "properties": properties, "required": required, "additionalProperties": false}
}
