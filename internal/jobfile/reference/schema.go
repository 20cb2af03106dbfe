package reference

import (
	"bytes"
	"encoding/json"
	"strings"

	"github.com/cronce-io/cronce/internal/codec"
)

// object is a part of the schema. encoding/json writes its members in the order of their names.
type object map[string]any

const (
	durationPattern = `^\+?((\d+(\.\d*)?|\.\d+)(ns|us|µs|μs|ms|s|m|h))+$`
	sizePattern     = `^\d+KiB$`
)

// Schema returns the JSON Schema of a job file, in draft 7, which editors support. It describes the
// shape of a file. Only "cronce check" tells whether, for example, a schedule is valid.
func Schema() []byte {
	root := schemaOf(Field{Kind: Mapping, Fields: Fields()})
	root["$schema"] = "http://json-schema.org/draft-07/schema#"
	root["title"] = "Cronce job file"
	root["properties"].(object)["version"] = object{"const": 1, "description": "The version of this format."}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	// A tree of maps, lists, text and numbers cannot fail to encode.
	_ = enc.Encode(root)
	return b.Bytes()
}

func schemaOf(f Field) object {
	s := shape(f)
	if f.About != "" {
		s["description"] = described(f)
	}
	return s
}

func described(f Field) string {
	about := f.About
	if f.Limit != "" {
		about += " Limit: " + f.Limit + "."
	}
	if f.Default != "" {
		about += " Default: " + f.Default + "."
	}
	return strings.ReplaceAll(about, "`", "")
}

func shape(f Field) object {
	switch f.Kind {
	case Text:
		return object{"type": "string", "minLength": 1}
	case Word:
		return object{"enum": f.Words}
	case Duration:
		return object{"type": "string", "pattern": durationPattern}
	case Size:
		return object{"type": "string", "pattern": sizePattern}
	case Instant:
		return object{"type": "string", "format": "date-time"}
	case Count:
		s := object{"type": "integer", "minimum": 1}
		if f.Max > 0 {
			s["maximum"] = f.Max
		}
		return s
	case Texts:
		s := object{"type": "array", "items": object{"type": "string"}}
		if f.Max > 0 {
			s["maxItems"] = f.Max
		}
		return s
	case Mapping:
		return mapping(f)
	case Flag:
		return object{"type": "boolean"}
	case TextOr:
		text := object{"type": "string", "minLength": 1}
		if f.Empty {
			delete(text, "minLength")
		}
		return object{"anyOf": []object{text, mapping(f)}}
	case Headers:
		s := object{"type": "object", "additionalProperties": schemaOf(f.Fields[0])}
		if f.Max > 0 {
			s["maxProperties"] = f.Max
		}
		return s
	case Jobs:
		return object{"type": "array", "minItems": 1, "items": mapping(f)}
	}
	return object{} // Any
}

func mapping(f Field) object {
	properties, required := object{}, []string{}
	for _, m := range f.Fields {
		properties[m.Name] = schemaOf(m)
		if m.Required {
			required = append(required, m.Name)
		}
	}
	s := object{"type": "object", "additionalProperties": false, "properties": properties}
	if len(required) > 0 {
		s["required"] = required
	}
	if len(f.OneOf) > 0 {
		s["oneOf"] = codec.Map(f.OneOf, func(name string) object { return object{"required": []string{name}} })
	}
	return s
}
