package kv

import (
	"encoding/json"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/cronce-io/cronce/internal/core"
)

// Producers is where the producers of the namespace talk: core NATS, at most once,
// nothing is stored. Its methods are safe for concurrent use.
type Producers struct{ s *Store }

func (p *Producers) subject() string { return p.s.namespace + ".producers" }

// announcementAge is after how long an announcement would mislead.
const announcementAge = time.Second

// Announce tells every producer that listens, this one included. It does not
// wait, and keeps nothing for a broker that is away: what is old by then would
// only mislead.
func (p *Producers) Announce(a core.Announcement) error {
	data, err := json.Marshal(a)
	if err != nil {
		return err
	}
	if !p.s.Connected() {
		return nats.ErrDisconnected
	}
	p.s.transport.say(p.subject(), "", data, time.Now().Round(0).Add(announcementAge))
	return nil
}

// Listen calls f for each announcement, one call at a time, until stop is called.
// What cannot be read is left out: nobody has to be told, and a newer program's
// claims are not for us.
func (p *Producers) Listen(f func(core.Announcement)) (stop func(), err error) {
	return p.s.listen(p.subject(), func(m *nats.Msg) {
		if a, err := core.DecodeAnnouncement(m.Data); err == nil {
			f(a)
		} else {
			p.s.log.Debug("announcement not understood", "error", err)
		}
	})
}
