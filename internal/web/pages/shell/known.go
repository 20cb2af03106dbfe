package shell

import (
	"container/list"
	"sync"
	"time"
)

// maxKnown bounds the bytes of pages in memory.
const maxKnown = 8 << 20

// known remembers what each page showed last, by Request.key. If it is full, it forgets the pages
// that were used least recently. It is safe for concurrent use.
type known struct {
	mu    sync.Mutex
	bytes int
	order list.List // of *knownPage, the most recently used one at the front
	byKey map[string]*list.Element
}

type knownPage struct {
	key     string
	content content
	at      time.Time
}

func (p *knownPage) size() int { return len(p.key) + len(p.content.title) + len(p.content.body) }

func newKnown() *known { return &known{byKey: map[string]*list.Element{}} }

// put remembers a page whose reading began at the time at.
func (k *known) put(key string, c content, at time.Time) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if e := k.byKey[key]; e != nil {
		k.remove(e)
	}
	p := &knownPage{key, c, at}
	k.byKey[key] = k.order.PushFront(p)
	for k.bytes += p.size(); k.bytes > maxKnown; {
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
