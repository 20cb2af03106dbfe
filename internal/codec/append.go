package codec

import (
	"strconv"
	"time"
)

// object is a JSON object under construction, without reflection: the ledger's
// records and the events are written once or twice for each slot. What it writes
// is, byte for byte, what encoding/json makes of the same members.
type Object []byte

// open begins an object, the outer one or one within.
func (o Object) Open() Object { return append(o, '{') }

func (o Object) Name(name string) Object {
	if o[len(o)-1] != '{' { // which ends nothing but open: text is quoted
		o = append(o, ',')
	}
	o = append(o, '"')
	o = append(o, name...)
	return append(o, '"', ':')
}

func (o Object) End() Object { return append(o, '}') }

func (o Object) Text(name, value string) Object { return appendText(o.Name(name), value) }

// textIf, and its like, leave out what is empty.
func (o Object) TextIf(name, value string) Object {
	if value == "" {
		return o
	}
	return o.Text(name, value)
}

func (o Object) Number(name string, value int) Object {
	return strconv.AppendInt(o.Name(name), int64(value), 10)
}

func (o Object) NumberIf(name string, value int) Object {
	if value == 0 {
		return o
	}
	return o.Number(name, value)
}

func (o Object) RevisionIf(name string, value uint64) Object {
	if value == 0 {
		return o
	}
	return strconv.AppendUint(o.Name(name), value, 10)
}

func (o Object) Time(name string, value time.Time) Object {
	o = append(o.Name(name), '"')
	o = value.UTC().AppendFormat(o, time.RFC3339Nano)
	return append(o, '"')
}

func (o Object) TimeIf(name string, value time.Time) Object {
	if value.IsZero() {
		return o
	}
	return o.Time(name, value)
}

func (o Object) TrueIf(name string, value bool) Object {
	if !value {
		return o
	}
	return append(o.Name(name), "true"...)
}

// appendText quotes a string.
func appendText(b []byte, s string) []byte {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c > '~' || c == '"' || c == '\\' {
			quoted, _ := Marshal(s) // of a string it does not fail
			return append(b, quoted...)
		}
	}
	b = append(b, '"')
	b = append(b, s...)
	return append(b, '"')
}
