package payload

import (
	"reflect"
	"slices"
	"strings"
)

// field is a field of a struct that a member of a JSON object is decoded into.
type field struct {
	typ    reflect.Type
	quoted bool // with the option "string": the member is a string that has the value in it
	tagged bool // the name comes from a tag
}

// fieldsOf returns the fields that encoding/json knows in a struct, by the names of their members.
// Fields of embedded structs are among them. If several fields have one name, the one that is
// embedded least deeply counts. If several are embedded equally deeply, see dominant.
func fieldsOf(t reflect.Type) map[string]field {
	all := map[string]field{}
	visited := map[reflect.Type]bool{}
	for level := []reflect.Type{t}; len(level) > 0; {
		var deeper []reflect.Type
		found := map[string][]field{}
		times := map[reflect.Type]int{} // how often a type is embedded here: twice hides its fields
		for _, t := range level {
			times[t]++
		}
		for _, t := range level {
			if visited[t] {
				continue
			}
			visited[t] = true
			for f := range t.Fields() {
				name, known, embedded := fieldOf(f)
				switch {
				case embedded != nil:
					deeper = append(deeper, embedded)
				case name != "":
					found[name] = append(found[name], slices.Repeat([]field{known}, times[t])...)
				}
			}
		}
		for name, fields := range found {
			if _, taken := all[name]; taken {
				continue
			}
			if f, only := dominant(fields); only {
				all[name] = f
			}
		}
		level = deeper
	}
	return all
}

// fieldOf returns the member of one field, or the embedded struct whose fields are members.
func fieldOf(f reflect.StructField) (name string, known field, embedded reflect.Type) {
	tag := f.Tag.Get("json")
	if tag == "-" {
		return "", field{}, nil
	}
	name, options, _ := strings.Cut(tag, ",")
	inner := f.Type
	if inner.Kind() == reflect.Pointer && inner.Name() == "" {
		inner = inner.Elem()
	}
	switch {
	case f.Anonymous && name == "" && inner.Kind() == reflect.Struct:
		return "", field{}, inner
	case !f.IsExported():
		return "", field{}, nil
	}
	known = field{typ: f.Type, tagged: name != ""}
	if name == "" {
		name = f.Name
	}
	for option := range strings.SplitSeq(options, ",") {
		known.quoted = known.quoted || option == "string" && isScalar(inner.Kind())
	}
	return name, known, nil
}

func isScalar(k reflect.Kind) bool {
	return k == reflect.Bool || k == reflect.String || k >= reflect.Int && k <= reflect.Float64
}

// dominant returns the field that counts among those of one name and depth: the only one, or the
// only one whose name comes from its tag. It returns false if none counts.
func dominant(fields []field) (field, bool) {
	if len(fields) == 1 {
		return fields[0], true
	}
	var tagged []field
	for _, f := range fields {
		if f.tagged {
			tagged = append(tagged, f)
		}
	}
	if len(tagged) == 1 {
		return tagged[0], true
	}
	return field{}, false
}
