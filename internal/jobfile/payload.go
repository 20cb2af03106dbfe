package jobfile

import (
	"bytes"
	"cmp"
	"encoding/json"
	"slices"

	"github.com/cronce-io/cronce/job"
)

// payload writes any value as JSON, members sorted. It ends as soon as the limit
// is passed, because a few aliases of aliases can stand for gigabytes.
func (d *decoder) payload(v value) (json.RawMessage, bool) {
	w := payloadWriter{limit: job.MaxPayload}
	w.write(v.node, 0)
	switch {
	case w.broken:
		return nil, false
	case w.deep:
		d.fail(v.at, "%s: nested too deeply: at most %d levels", v.label, maxDepth)
		return nil, false
	case w.buf.Len() > w.limit:
		d.fail(v.at, "%s: it is more than %d KiB as JSON: store it elsewhere and pass its name", v.label, job.MaxPayload>>10)
		return nil, false
	}
	return w.buf.Bytes(), true
}

type payloadWriter struct {
	buf          bytes.Buffer
	limit        int
	broken, deep bool
}

func (w *payloadWriter) write(n *node, depth int) {
	if depth > maxDepth {
		w.deep = true
	}
	if w.broken || w.deep || w.buf.Len() > w.limit {
		return
	}
	switch n.kind {
	case broken:
		w.broken = true
	case null:
		w.buf.WriteString("null")
	case boolean, number:
		w.buf.WriteString(n.scalar)
	case text:
		w.text(n.scalar)
	case list:
		w.buf.WriteByte('[')
		for i, item := range n.items {
			w.comma(i)
			w.write(item, depth+1)
		}
		w.buf.WriteByte(']')
	case mapping:
		w.buf.WriteByte('{')
		for i, m := range sorted(n.members) {
			w.comma(i)
			w.text(m.name)
			w.buf.WriteByte(':')
			w.write(m.value, depth+1)
		}
		w.buf.WriteByte('}')
	}
}

func (w *payloadWriter) comma(i int) {
	if i > 0 {
		w.buf.WriteByte(',')
	}
}

// text writes s as it was written, without the escapes that only HTML needs.
func (w *payloadWriter) text(s string) {
	enc := json.NewEncoder(&w.buf)
	enc.SetEscapeHTML(false)
	// A string of valid UTF-8 (see tree.text) cannot fail to encode.
	_ = enc.Encode(s)
	w.buf.Truncate(w.buf.Len() - 1) // Encode ends in a line feed
}

func sorted(members []member) []member {
	return slices.SortedFunc(slices.Values(members), func(a, b member) int { return cmp.Compare(a.name, b.name) })
}
