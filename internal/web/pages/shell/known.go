package shell

import (
	"container/list"
	"sync"
	"time"
)

// mostKnown bounds the bytes of pages in memory.
const mostKnown = 8 << 20

// known remembers the content of the pages that were shown last, by their address and what the
// user has chosen. It is safe for concurrent use.
type known struct {
	mu    sync.Mutex
	bytes int
	order list.List // of *knownPage, the one that was used last at the front
	byKey map[string]*list.Element
}

type knownPage struct {
	key     string
	content content
	at      time.Time
}

func (p *knownPage) size() int { return len(p.key) + len(p.content.title) + len(p.content.body) }

func newKnown() *known { return &known{byKey: map[string]*list.Element{}} }

// put remembers a page that was read from the time at on.
func (k *known) put(key string, c content, at time.Time) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if e := k.byKey[key]; e != nil {
		k.remove(e)
	}
	p := &knownPage{key, c, at}
	k.byKey[key] = k.order.PushFront(p)
	for k.bytes += p.size(); k.bytes > mostKnown; {
		k.remove(k.order.Back())
	}
}

func (k *known) remove(e *list.Element) {
	p := k.order.Remove(e).(*knownPage)
	delete(k.byKey, p.key)
	k.bytes -= p.size()
}

// last returns the page as it was shown last.
func (k *known) last(key string) (c content, at time.Time, ok bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	e := k.byKey[key]
	if e == nil {
		return content{}, time.Time{}, false
	}
	k.order.MoveToFront(e)
	p := e.Value.(*knownPage)
	return p.content, p.at, true
}
