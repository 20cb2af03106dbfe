package kv_test

import (
	"reflect"
	"testing"
	"time"

	"github.com/cronce-io/cronce/internal/core/exchange"
	"github.com/cronce-io/cronce/internal/lab/natstest"
	"github.com/cronce-io/cronce/kv"
)

func TestProducersHearEachOther(t *testing.T) {
	t.Parallel()
	srv := natstest.Run(t)
	a, b := open(t, srv.JetStream(), kv.Options{}), open(t, srv.JetStream(), kv.Options{})
	other := open(t, srv.JetStream(), kv.Options{Namespace: "other"})
	heard := make(chan exchange.Announcement, 10)
	stop, err := b.Announcements().Listen(func(a exchange.Announcement) { heard <- a })
	if err != nil {
		t.Fatal(err)
	}
	at := time.Date(2026, 11, 21, 7, 0, 0, 123456789, time.UTC)
	want := exchange.Announcement{
		Node: "n1", Started: at, Kind: exchange.AnnounceHere, Time: at.Add(time.Hour), Except: []string{"report"},
		Members: 1<<63 + 1, Registry: 1,
	}
	natstest.Eventually(t, "an announcement", func() bool {
		// The subscription takes effect only when the server has processed it.
		if err := other.Announcements().Announce(exchange.Announcement{Node: "stranger"}); err != nil {
			t.Fatal(err)
		}
		if err := a.Announcements().Announce(want); err != nil {
			t.Fatal(err)
		}
		return len(heard) > 0
	})
	if got := <-heard; !reflect.DeepEqual(got, want) {
		t.Errorf("heard %+v, want %+v", got, want)
	}
	stop()
}

func TestWhatIsNoAnnouncementIsRefused(t *testing.T) {
	t.Parallel()
	for _, data := range []string{``, `{}`, `{"v":1}`, `{"v":2,"node":"a"}`, `{"v":1,"node":"a","members":"xyz"}`} {
		if a, err := exchange.DecodeAnnouncement([]byte(data)); err == nil {
			t.Errorf("%q reads %+v", data, a)
		}
	}
}
