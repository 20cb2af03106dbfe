package spec

import (
	"bytes"
	"cmp"
	"encoding/json"
	"slices"

	"github.com/cronce-io/cronce/internal/codec"
	"github.com/cronce-io/cronce/job"
)

// payload writes any value as JSON with sorted members. It stops at the limit, because a few nested
// aliases can stand for gigabytes.
func (d *decoder) payload(v value) (json.RawMessage, bool) {
	w := payloadWriter{limit: job.MaxPayload}
	w.write(v.Node, 0)
	switch {
	case w.broken:
		return nil, false
	case w.deep:
		d.fail(v.At, "%s: nested too deeply: at most %d levels", v.label, MaxDepth)
		return nil, false
	case w.buf.Len() > w.limit:
		d.fail(v.At, "%s: it is more than %d KiB as JSON: store it elsewhere and pass its name", v.label, job.MaxPayload>>10)
		return nil, false
	}
	return w.buf.Bytes(), true
}

type payloadWriter struct {
	buf          bytes.Buffer
	limit        int
	broken, deep bool
}

func (w *payloadWriter) write(n *Node, depth int) {
	if depth > MaxDepth {
		w.deep = true
	}
	if w.broken || w.deep || w.buf.Len() > w.limit {
		return
	}
	switch n.Kind {
	case Broken:
		w.broken = true
	case Null:
		w.buf.WriteString("null")
	case Boolean, Number:
		w.buf.WriteString(n.Scalar)
	case Text:
		w.text(n.Scalar)
	case List:
		w.buf.WriteByte('[')
		for i, item := range n.Items {
			w.comma(i)
			w.write(item, depth+1)
		}
		w.buf.WriteByte(']')
	case Mapping:
		w.buf.WriteByte('{')
		for i, m := range sorted(n.Members) {
			w.comma(i)
			w.text(m.Name)
			w.buf.WriteByte(':')
			w.write(m.Value, depth+1)
		}
		w.buf.WriteByte('}')
	}
}

func (w *payloadWriter) comma(i int) {
	if i > 0 {
		w.buf.WriteByte(',')
	}
}

// text writes s as a JSON string, without the escapes that only HTML needs.
func (w *payloadWriter) text(s string) {
	quoted, _ := codec.Marshal(s) // a string cannot fail to encode
	w.buf.Write(quoted)
}

func sorted(members []Member) []Member {
	return slices.SortedFunc(slices.Values(members), func(a, b Member) int { return cmp.Compare(a.Name, b.Name) })
}
