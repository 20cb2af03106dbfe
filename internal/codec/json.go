package codec

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"regexp"
	"strings"
	"time"
)

// Version is the format version of every value this program writes.
const Version = 1

// ErrInvalid and ErrVersion are exported and documented by package job.
var (
	ErrInvalid = errors.New("invalid")
	ErrVersion = errors.New("unknown format version")
)

// Extra holds the members of a stored object for which this program has no field. They are
// kept when the object is written again, so that an older node does not remove what a newer
// one stored.
type Extra = map[string]json.RawMessage

// Decode reads a JSON object into the struct that dst points to, and returns the members for
// which the struct has no field. The field V of the struct is the format version. Another
// version than this program's is ErrVersion.
func Decode(what string, data []byte, dst any) (Extra, error) {
	// Nearly all objects have no unknown members. Reading these in one strict pass lists a
	// ledger of a million records three times as fast.
	if NewStrict().Read(data, dst) {
		return nil, nil
	}
	return DecodeLoosely(what, data, dst)
}

// Strict reads objects that have no unknown members, one after the other.
type Strict struct {
	from bytes.Reader
	*json.Decoder
}

// NewStrict returns a Strict without data.
func NewStrict() *Strict {
	s := &Strict{}
	s.Decoder = json.NewDecoder(&s.from)
	s.DisallowUnknownFields()
	return s
}

// Read reads data into dst. It returns false if data is not a single object of this version
// without unknown members, or may hold an instant that is not RFC 3339. Then s must not be used again.
func (s *Strict) Read(data []byte, dst any) bool {
	s.from.Reset(data)
	if isLenient(data) || s.Decode(dst) != nil || reflect.ValueOf(dst).Elem().FieldByName("V").Int() != Version {
		return false
	}
	_, err := s.Token() // not More, which is false before a "}" or a "]" too
	return errors.Is(err, io.EOF)
}

// DecodeLoosely does what Decode does, without the strict pass.
func DecodeLoosely(what string, data []byte, dst any) (Extra, error) {
	var head struct {
		V int `json:"v"`
	}
	if err := json.Unmarshal(data, &head); err != nil {
		return nil, Unreadable(what, err)
	}
	if head.V != Version {
		return nil, fmt.Errorf("%w: %s has v=%d, this program knows v=%d: upgrade this program", ErrVersion, what, head.V, Version)
	}
	if err := Unmarshal(data, dst); err != nil {
		return nil, Unreadable(what, err)
	}
	var extra Extra
	if err := json.Unmarshal(data, &extra); err != nil {
		return nil, Unreadable(what, err)
	}
	for _, name := range members(reflect.TypeOf(dst).Elem()) {
		delete(extra, name)
	}
	if len(extra) == 0 {
		return nil, nil
	}
	return extra, nil
}

// lenient matches what package time accepts in an instant and this package refuses: an hour of one
// digit, a comma, more than nine digits of fraction, an offset of 24 hours or of 60 minutes
// (https://go.dev/issue/54580).
var lenient = regexp.MustCompile(`T(?:\d:|[\d:]{8}(?:,\d|\.\d{10}|[.\d]*[+-](?:24:|\d\d:60)))`)

// isLenient reports whether data matches lenient. Matching costs a tenth of the time to read a record,
// so it is skipped if all instants are in UTC and have two digits for the hour, as nearly all do.
func isLenient(data []byte) bool {
	for i := 0; ; {
		t := bytes.IndexByte(data[i:], 'T')
		if t < 0 {
			return false
		}
		i += t + 1
		after := data[i:min(len(data), i+len("15:04:05.999999999Z"))]
		if len(after) == 0 || after[0] < '0' || '9' < after[0] {
			continue
		}
		utc := bytes.IndexByte(after, 'Z')
		if plain := utc == 8 || utc > 8 && after[8] == '.'; !plain || after[2] != ':' {
			return lenient.Match(data)
		}
	}
}

// ParseInstant reads an instant in RFC 3339, with up to nine digits of fraction and no other spelling.
func ParseInstant(text string) (time.Time, error) {
	if isLenient([]byte(text)) {
		return time.Time{}, fmt.Errorf("%q is not RFC 3339", Clip(text))
	}
	return time.Parse(time.RFC3339, text)
}

// Unmarshal does what json.Unmarshal does, but refuses an instant that ParseInstant refuses.
func Unmarshal(data []byte, dst any) error {
	if isLenient(data) {
		// The match may be part of an ordinary text. So read a copy in which every match is replaced:
		// an instant is then invalid, and a text is not.
		if err := json.Unmarshal(lenient.ReplaceAll(data, []byte("t")), reflect.New(reflect.TypeOf(dst).Elem()).Interface()); err != nil {
			return err
		}
	}
	return json.Unmarshal(data, dst)
}

// Unreadable returns an error that wraps ErrInvalid, for a value that is not JSON, or ErrVersion, if a
// type that reads itself returned that. It clips the text of err, which may quote the whole value.
func Unreadable(what string, err error) error {
	if errors.Is(err, ErrVersion) {
		return fmt.Errorf("%s: %w", what, err)
	}
	return fmt.Errorf("%w %s: %s", ErrInvalid, what, ClipTo(err.Error(), MaxOldBytes))
}

// Marshal does what json.Marshal does, but does not escape HTML: "<" would take six bytes.
func Marshal(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	err := e.Encode(v)
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), err
}

// Encode writes the members of src and the extra ones.
func Encode(src any, extra Extra) ([]byte, error) {
	data, err := Marshal(src)
	if err != nil {
		return nil, err
	}
	return WithExtra(data, extra)
}

// WithExtra adds the extra members to the object in data, except those that it has already.
func WithExtra(data []byte, extra Extra) ([]byte, error) {
	if len(extra) == 0 {
		return data, nil
	}
	var all map[string]json.RawMessage
	if err := json.Unmarshal(data, &all); err != nil {
		return nil, err
	}
	for name, value := range extra {
		if _, own := all[name]; !own {
			all[name] = value
		}
	}
	return Marshal(all)
}

// members returns the names of the members that a struct has fields for.
func members(t reflect.Type) []string {
	var names []string
	for _, field := range reflect.VisibleFields(t) {
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		names = append(names, name)
	}
	return names
}

// Duration is a time.Duration that JSON holds as Go writes it: "1m30s".
type Duration time.Duration

// MarshalText returns the form of time.Duration.String.
func (d Duration) MarshalText() ([]byte, error) { return []byte(time.Duration(d).String()), nil }

// UnmarshalText reads the form that time.ParseDuration reads.
func (d *Duration) UnmarshalText(text []byte) error {
	parsed, err := time.ParseDuration(string(text))
	*d = Duration(parsed)
	return err
}

// SameJSON compares two texts without their white space. Text that is empty is no JSON.
func SameJSON(x, y []byte) bool {
	var a, b bytes.Buffer
	return json.Compact(&a, x) == nil && json.Compact(&b, y) == nil && bytes.Equal(a.Bytes(), b.Bytes())
}
