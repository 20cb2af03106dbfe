package proxy

import (
	"bytes"
	"io"
	"time"
)

// stopwatch measures how long the server takes to answer the messages of one kind. The proxy's lock
// guards sent.
type stopwatch struct {
	verb     []byte // how the protocol lines of these messages begin; nil: it measures nothing
	answered func(took time.Duration)
	sent     map[string]time.Time // when the first copy was sent, by reply subject
}

// Time makes the proxy call answered for each message that the client publishes to a subject that
// begins with prefix, as soon as the server has answered it. took is the time that the server alone
// took: what a fault adds to it does not count. If several copies of a message have the same reply
// subject, took counts from the first one. Call Time before any client connects.
//
// The stopwatch misses a message or an answer whose protocol line comes in two reads, and everything
// that is encrypted.
func (p *Proxy) Time(prefix []byte, answered func(took time.Duration)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.watch = stopwatch{append([]byte("PUB "), prefix...), answered, map[string]time.Time{}}
}

// noteSent notes the messages in data, which is about to be sent to the server.
func (p *Proxy) noteSent(data []byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for p.watch.verb != nil {
		i := bytes.Index(data, p.watch.verb)
		if i < 0 {
			return
		}
		// "PUB subject reply size", or "HPUB subject reply size size". Without a reply subject there
		// is one field less.
		whole := 4
		if i > 0 && data[i-1] == 'H' {
			whole = 5
		}
		line, after, _ := bytes.Cut(data[i:], []byte("\r\n"))
		if fields := bytes.Fields(line); len(fields) == whole {
			if reply := string(fields[2]); p.watch.sent[reply].IsZero() {
				p.watch.sent[reply] = time.Now()
			}
		}
		data = after
	}
}

// noteAnswers notes the answers in data, which the server has sent.
func (p *Proxy) noteAnswers(data []byte) {
	var took []time.Duration
	p.mu.Lock()
	for reply, at := range p.watch.sent {
		if bytes.Contains(data, []byte("MSG "+reply+" ")) {
			delete(p.watch.sent, reply)
			took = append(took, time.Since(at))
		}
	}
	answered := p.watch.answered
	p.mu.Unlock()
	for _, d := range took {
		answered(d)
	}
}

// answers is what a server sends. The proxy notes each answer as soon as it is read.
type answers struct {
	io.Reader
	p *Proxy
}

func (a answers) Read(data []byte) (int, error) {
	n, err := a.Reader.Read(data)
	a.p.noteAnswers(data[:n])
	return n, err
}
