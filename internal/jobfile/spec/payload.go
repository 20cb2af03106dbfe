package spec

import (
	"encoding/json"

	"github.com/cronce-io/cronce/internal/codec"
	"github.com/cronce-io/cronce/job"
)

// payload returns any value as JSON with sorted members.
func (d *decoder) payload(v value) (json.RawMessage, bool) {
	p := payloadReader{left: job.MaxPayload + 1}
	plain := p.plain(v.Node, 0)
	data, err := codec.Marshal(plain)
	switch {
	case p.broken:
		return nil, false
	case p.deep:
		d.fail(v.At, "%s: nested too deeply: at most %d levels", v.label, MaxDepth)
		return nil, false
	case p.left < 0 || err != nil || len(data) > job.MaxPayload:
		d.fail(v.At, "%s: it is more than %d KiB as JSON: store it elsewhere and pass its name", v.label, job.MaxPayload>>10)
		return nil, false
	}
	return data, true
}

// payloadReader returns nodes in the types of encoding/json.
type payloadReader struct {
	// left is the number of bytes that may follow. Reading stops when it is used up, because a few
	// nested aliases can stand for gigabytes.
	left         int
	broken, deep bool
}

func (p *payloadReader) plain(n *Node, depth int) any {
	p.deep = p.deep || depth > MaxDepth
	p.broken = p.broken || n.Kind == Broken
	if p.left -= 1 + len(n.Scalar); p.left < 0 || p.broken || p.deep {
		return nil
	}
	switch n.Kind {
	case Boolean:
		return n.Scalar == "true"
	case Number:
		return json.Number(n.Scalar)
	case Text:
		return n.Scalar
	case List:
		all := make([]any, len(n.Items)) // an empty list is not null
		for i, item := range n.Items {
			all[i] = p.plain(item, depth+1)
		}
		return all
	case Mapping:
		all := map[string]any{}
		for _, m := range n.Members {
			p.left -= len(m.Name)
			all[m.Name] = p.plain(m.Value, depth+1)
		}
		return all
	}
	return nil
}
