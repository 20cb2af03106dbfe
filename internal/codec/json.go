package codec

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"time"
)

// Version is the format version of every value this program writes.
const Version = 1

var (
	ErrInvalid = errors.New("invalid")
	ErrVersion = errors.New("unknown format version")
)

// Extra holds the members of a stored object for which this program has no field. They are
// kept when the object is written again, so that an older node does not remove what a newer
// one stored.
type Extra = map[string]json.RawMessage

// decode reads the object in data into the struct that dst points to, whose field
// V is the version, and returns the members left over. An unknown version is
// refused.
func Decode(what string, data []byte, dst any) (Extra, error) {
	// Nearly all objects have no unknown members: one strict pass reads them, and
	// a ledger of a million records is listed three times as fast.
	if NewStrict().Read(data, dst) {
		return nil, nil
	}
	return DecodeLoosely(what, data, dst)
}

// strict reads one object after the other.
type Strict struct {
	from bytes.Reader
	*json.Decoder
}

func NewStrict() *Strict {
	s := &Strict{}
	s.Decoder = json.NewDecoder(&s.from)
	s.DisallowUnknownFields()
	return s
}

// read reports whether all of data is one object of this version, with no members that
// dst has no field for. If it is not, s cannot be used again.
func (s *Strict) Read(data []byte, dst any) bool {
	s.from.Reset(data)
	return s.Decode(dst) == nil && reflect.ValueOf(dst).Elem().FieldByName("V").Int() == Version && !s.More()
}

func DecodeLoosely(what string, data []byte, dst any) (Extra, error) {
	var head struct {
		V int `json:"v"`
	}
	if err := json.Unmarshal(data, &head); err != nil {
		return nil, Unreadable(what, err)
	}
	if head.V != Version {
		return nil, fmt.Errorf("%w: %s has v=%d, this program knows v=%d: upgrade it", ErrVersion, what, head.V, Version)
	}
	if err := json.Unmarshal(data, dst); err != nil {
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

// unreadable wraps errInvalid. The text of err may quote the whole value.
func Unreadable(what string, err error) error {
	return fmt.Errorf("%w %s: %s", ErrInvalid, what, ClipTo(err.Error(), MaxOldBytes))
}

// marshal is json.Marshal that does not escape HTML: "<" would take six bytes.
func Marshal(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	err := e.Encode(v)
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), err
}

// encode writes src with the extra members beside its own.
func Encode(src any, extra Extra) ([]byte, error) {
	data, err := Marshal(src)
	if err != nil {
		return nil, err
	}
	return WithExtra(data, extra)
}

// withExtra adds to an object the members that this program has no field for.
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

func members(t reflect.Type) []string {
	var names []string
	for i := range t.NumField() {
		name, _, _ := strings.Cut(t.Field(i).Tag.Get("json"), ",")
		names = append(names, name)
	}
	return names
}

// duration is a time.Duration that stands in JSON as Go writes it: "1m30s".
type Duration time.Duration

func (d Duration) MarshalText() ([]byte, error) { return []byte(time.Duration(d).String()), nil }

func (d *Duration) UnmarshalText(text []byte) error {
	parsed, err := time.ParseDuration(string(text))
	*d = Duration(parsed)
	return err
}
