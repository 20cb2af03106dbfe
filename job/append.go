package job

import (
	"strconv"
	"time"
)

// object is a JSON object under construction, without reflection: the ledger's
// records and the events are written once or twice for each slot. What it writes
// is, byte for byte, what encoding/json makes of the same members.
type object []byte

// open begins an object, the outer one or one within.
func (o object) open() object { return append(o, '{') }

func (o object) name(name string) object {
	if o[len(o)-1] != '{' { // which ends nothing but open: text is quoted
		o = append(o, ',')
	}
	o = append(o, '"')
	o = append(o, name...)
	return append(o, '"', ':')
}

func (o object) end() object { return append(o, '}') }

func (o object) text(name, value string) object { return appendText(o.name(name), value) }

// textIf, and its like, leave out what is empty.
func (o object) textIf(name, value string) object {
	if value == "" {
		return o
	}
	return o.text(name, value)
}

func (o object) number(name string, value int) object {
	return strconv.AppendInt(o.name(name), int64(value), 10)
}

func (o object) numberIf(name string, value int) object {
	if value == 0 {
		return o
	}
	return o.number(name, value)
}

func (o object) revisionIf(name string, value uint64) object {
	if value == 0 {
		return o
	}
	return strconv.AppendUint(o.name(name), value, 10)
}

func (o object) time(name string, value time.Time) object {
	o = append(o.name(name), '"')
	o = value.UTC().AppendFormat(o, time.RFC3339Nano)
	return append(o, '"')
}

func (o object) timeIf(name string, value time.Time) object {
	if value.IsZero() {
		return o
	}
	return o.time(name, value)
}

func (o object) trueIf(name string, value bool) object {
	if !value {
		return o
	}
	return append(o.name(name), "true"...)
}

// appendText quotes a string.
func appendText(b []byte, s string) []byte {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c > '~' || c == '"' || c == '\\' {
			quoted, _ := marshal(s) // of a string it does not fail
			return append(b, quoted...)
		}
	}
	b = append(b, '"')
	b = append(b, s...)
	return append(b, '"')
}
