package shell

import (
	"container/list"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/cronce-io/cronce/client"
)

const (
	// liveHeader is the header of a request that refreshes a page. It has the ID of the process
	// that sent the browser the message. Behind a proxy, another process may get the request. That
	// one may not have received the events yet, so it reads the page anew.
	liveHeader = "Cronce-Live"

	// sharedTime is how long browsers share an answer at most, and maxShared how many answers are
	// kept meanwhile.
	sharedTime = time.Second
	maxShared  = 256
)

// answer is a page as it is sent.
type answer struct {
	status int
	zipped bool
	data   []byte
}

// send sends the answer. Browsers must not keep it: what it shows changes.
func (a *answer) send(w http.ResponseWriter) {
	if a == nil {
		return // the browser is gone
	}
	h := w.Header()
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Cache-Control", "no-store")
	h.Set("Vary", "Accept-Encoding, Cookie, "+liveHeader)
	if a.status == http.StatusServiceUnavailable {
		h.Set("Retry-After", "2")
		h.Set("Refresh", "5") // for browsers without a script
	}
	if a.zipped {
		h.Set("Content-Encoding", "gzip")
	}
	h.Set("Content-Length", strconv.Itoa(len(a.data)))
	w.WriteHeader(a.status)
	_, _ = w.Write(a.data) // fails only if the browser is gone
}

// shareKey has everything that an answer depends on, apart from the time.
type shareKey struct {
	uri, zone, theme, user string
	may                    client.Rights
	zipped, session        bool
}

func (q *Request) shareKey() shareKey {
	return shareKey{q.URL.RequestURI(), q.Prefs.Zone, q.Prefs.Theme, q.user, q.May, q.unzips(), q.hasSession()}
}

// shared has the answers to browsers that refresh their pages. Each message of live makes all of
// them ask at once. Those with the same shareKey get one answer, which was read after the message.
// It is safe for concurrent use.
type shared struct {
	mu      sync.Mutex
	news    time.Time
	began   time.Time
	answers map[shareKey]func() *answer
}

// get returns an answer that was composed after the last news, or composes one.
func (s *shared) get(k shareKey, last func() time.Time, compose func(news time.Time) *answer) *answer {
	s.mu.Lock()
	news := last() // with the lock held, so that s.news never goes back
	if news != s.news || time.Since(s.began) > sharedTime || len(s.answers) >= maxShared {
		s.news, s.began, s.answers = news, time.Now(), map[shareKey]func() *answer{}
	}
	one := s.answers[k]
	if one == nil {
		one = sync.OnceValue(func() *answer { return compose(news) })
		s.answers[k] = one
	}
	s.mu.Unlock()
	return one()
}

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
