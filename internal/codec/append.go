package codec

import (
	"strconv"
	"time"
)

// Object is a JSON object under construction. It has the same bytes that Marshal writes, but is built
// without reflection, which is faster: each slot needs several records and events. A method whose
// name ends in If omits a zero value.
type Object []byte

// Open begins an object, which may be nested in another.
func (o Object) Open() Object { return append(o, '{') }

// Name begins a member; the caller appends its value.
func (o Object) Name(name string) Object {
	if o[len(o)-1] != '{' { // not the first member; values never end with {
		o = append(o, ',')
	}
	o = append(o, '"')
	o = append(o, name...)
	return append(o, '"', ':')
}

// End ends the object.
func (o Object) End() Object { return append(o, '}') }

// Text adds a string.
func (o Object) Text(name, value string) Object { return appendText(o.Name(name), value) }

// TextIf adds a string that is not empty.
func (o Object) TextIf(name, value string) Object {
	if value == "" {
		return o
	}
	return o.Text(name, value)
}

// Number adds a number.
func (o Object) Number(name string, value int) Object {
	return strconv.AppendInt(o.Name(name), int64(value), 10)
}

// NumberIf adds a number that is not zero.
func (o Object) NumberIf(name string, value int) Object {
	if value == 0 {
		return o
	}
	return o.Number(name, value)
}

// RevisionIf adds a revision that is not zero.
func (o Object) RevisionIf(name string, value uint64) Object {
	if value == 0 {
		return o
	}
	return strconv.AppendUint(o.Name(name), value, 10)
}

// Time adds an instant in UTC.
func (o Object) Time(name string, value time.Time) Object {
	o = append(o.Name(name), '"')
	o = value.UTC().AppendFormat(o, time.RFC3339Nano)
	return append(o, '"')
}

// TimeIf adds an instant that is not the zero time.
func (o Object) TimeIf(name string, value time.Time) Object {
	if value.IsZero() {
		return o
	}
	return o.Time(name, value)
}

// TrueIf adds true.
func (o Object) TrueIf(name string, value bool) Object {
	if !value {
		return o
	}
	return append(o.Name(name), "true"...)
}

func appendText(b []byte, s string) []byte {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c > '~' || c == '"' || c == '\\' {
			quoted, _ := Marshal(s) // a string can always be encoded
			return append(b, quoted...)
		}
	}
	b = append(b, '"')
	b = append(b, s...)
	return append(b, '"')
}
