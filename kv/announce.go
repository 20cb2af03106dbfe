package kv

import (
	"encoding/json"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/cronce-io/cronce/internal/core"
)

// Producers is the channel on which the producers of the namespace exchange
// announcements. It uses core NATS: delivery is at most once, and nothing is stored. Its
// methods are safe for concurrent use.
type Producers struct{ s *Store }

func (p *Producers) subject() string { return p.s.namespace + ".producers" }

// announcementAge bounds how long an announcement may wait to be sent. An older one would
// mislead.
const announcementAge = time.Second

// Announce publishes to all producers that listen, this one included. It does not block,
// and it does not buffer while the connection is down: a stale announcement would
// mislead.
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

// Listen calls f for each announcement, one call at a time, until stop is called. It
// drops announcements that it cannot decode: they are hints, and one in a newer format is
// not for this version.
func (p *Producers) Listen(f func(core.Announcement)) (stop func(), err error) {
	return p.s.listen(p.subject(), func(m *nats.Msg) {
		if a, err := core.DecodeAnnouncement(m.Data); err == nil {
			f(a)
		} else {
			p.s.log.Debug("announcement not understood", "error", err)
		}
	})
}
