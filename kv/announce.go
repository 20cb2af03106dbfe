package kv

import (
	"encoding/json"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/cronce-io/cronce/internal/broker/space"
	"github.com/cronce-io/cronce/internal/core/exchange"
)

// Announcements is the subject on which the producers of the namespace exchange announcements.
// It uses core NATS: delivery is at most once, and nothing is stored. Its methods are safe for
// concurrent use.
type Announcements struct{ s *space.Space }

func (p *Announcements) subject() string { return p.s.Namespace + ".producers" }

// announcementAge bounds how long an announcement may wait to be sent. An older one would
// mislead.
const announcementAge = time.Second

// Announce publishes to all producers that listen, this one included. It does not block,
// and it does not buffer while the connection is down: a stale announcement would
// mislead.
func (p *Announcements) Announce(a exchange.Announcement) error {
	data, err := json.Marshal(a)
	if err != nil {
		return err
	}
	if !p.s.Connected() {
		return nats.ErrDisconnected
	}
	p.s.Transport.Publish(p.subject(), "", data, time.Now().Round(0).Add(announcementAge))
	return nil
}

// Listen calls f for each announcement, one call at a time, until stop is called. It
// drops announcements that it cannot decode: they are hints, and one in a newer format is
// not for this version.
func (p *Announcements) Listen(f func(exchange.Announcement)) (stop func(), err error) {
	return p.s.Listen(p.subject(), func(m *nats.Msg) {
		if a, err := exchange.DecodeAnnouncement(m.Data); err == nil {
			f(a)
		} else {
			p.s.Log.Debug("announcement cannot be read", "error", err)
		}
	})
}
