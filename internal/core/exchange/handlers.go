package exchange

import (
	"github.com/cronce-io/cronce/internal/codec"
)

// Handlers is the list of the jobs for which a node has handlers, under the key "handlers.<node>" of
// the state bucket. The node writes it when it starts and when it changes. The list is not a part of the
// node's record, because a node writes its record every tenth of the lease.
type Handlers struct {
	Node string   `json:"node"`
	Jobs []string `json:"handlers,omitempty"`

	// More is how many handlers the list leaves out, because the server's limit of a message's size
	// has no room for them.
	More int `json:"more,omitempty"`

	Nonce string      `json:"nonce"`
	Extra codec.Extra `json:"-"`
}

// HandlerSet is a Handlers for many questions.
type HandlerSet struct {
	cut  bool
	jobs map[string]bool
}

// Set returns the list as a set.
func (h Handlers) Set() HandlerSet {
	set := HandlerSet{h.More > 0, make(map[string]bool, len(h.Jobs))}
	for _, name := range h.Jobs {
		set.jobs[name] = true
	}
	return set
}

// MayHandle reports whether the node may have a handler for the job. If its list is cut, the node may
// have one for every job.
func (s HandlerSet) MayHandle(job string) bool { return s.cut || s.jobs[job] }

// Cut returns the list with at most n jobs.
func (h Handlers) Cut(n int) Handlers {
	if left := len(h.Jobs) - n; left > 0 {
		h.Jobs, h.More = h.Jobs[:n], h.More+left
	}
	return h
}

type handlersMembers Handlers // without methods

type handlersWire struct {
	V int `json:"v"`
	handlersMembers
}

// MarshalJSON writes the value of a key "handlers.<node>".
func (h Handlers) MarshalJSON() ([]byte, error) {
	return codec.Encode(handlersWire{codec.Version, handlersMembers(h)}, h.Extra)
}

// DecodeHandlers reads the value of a key "handlers.<node>".
func DecodeHandlers(data []byte) (Handlers, error) {
	var w handlersWire
	extra, err := codec.DecodeBounded("list of handlers", data, &w, func(b *codec.Bounds) {
		b.Names("node", w.Node)
		b.Length("handlers", len(w.Jobs), codec.MaxHandlers)
		b.Names("job", w.Jobs...)
		b.Number("more", w.More, 0, codec.MaxSlots)
		b.Words("nonce", w.Nonce)
	})
	if err != nil {
		return Handlers{}, err
	}
	w.Extra = extra
	return Handlers(w.handlersMembers), nil
}
