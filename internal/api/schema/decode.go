package schema

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/cronce-io/cronce/internal/codec"
)

// Decode reads a request into the struct that into points to: one object, with each member once, under its exact name.
// encoding/json alone would take a name in another case, the last of two members, and null as if
// it were left out. If a member is wrong, Decode returns its name.
func Decode(data []byte, into any) (member string, err error) {
	if err := json.Unmarshal(data, new(json.RawMessage)); err != nil {
		return "", fmt.Errorf("read the body: %s", strings.TrimPrefix(err.Error(), "json: "))
	}
	d := json.NewDecoder(bytes.NewReader(data))
	if first, _ := d.Token(); first != json.Delim('{') {
		return "", fmt.Errorf("the body is not an object: %s", codec.Clip(string(data)))
	}
	members := map[string]reflect.Value{}
	v := reflect.ValueOf(into).Elem()
	for _, f := range reflect.VisibleFields(v.Type()) {
		if name, _, _ := strings.Cut(f.Tag.Get("json"), ","); name != "" {
			members[name] = v.FieldByIndex(f.Index)
		}
	}
	seen := map[string]bool{}
	for d.More() {
		token, _ := d.Token()
		name, _ := token.(string)
		field, known := members[name]
		var value json.RawMessage
		_ = d.Decode(&value) // it is valid, as Unmarshal has found
		switch {
		case !known:
			return name, fmt.Errorf("unknown member %q: want %s", name, strings.Join(slices.Sorted(maps.Keys(members)), ", "))
		case seen[name]:
			return name, fmt.Errorf("member %q is given twice", name)
		}
		seen[name] = true
		isAny := field.Type() == reflect.TypeFor[json.RawMessage]()
		if err := json.Unmarshal(value, field.Addr().Interface()); err != nil || string(value) == "null" && !isAny {
			return name, fmt.Errorf("member %q is %s: want %s", name, codec.Clip(string(value)), typeName(field.Type()))
		}
	}
	return "", nil
}

func typeName(t reflect.Type) string {
	switch t.Kind() {
	case reflect.Pointer:
		return typeName(t.Elem())
	case reflect.Struct:
		return "a time like 2026-11-21T07:00:00Z"
	case reflect.Bool:
		return "true or false"
	case reflect.Int, reflect.Int64, reflect.Uint64, reflect.Float64:
		return "a number"
	case reflect.Slice:
		return "an array"
	}
	return "a string"
}
