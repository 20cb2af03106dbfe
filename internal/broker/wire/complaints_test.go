package wire_test

import (
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/cronce-io/cronce/internal/broker/wire"
	"github.com/cronce-io/cronce/internal/lab/natstest"
)

func TestASuccessStaysOneDespiteComplaints(t *testing.T) {
	t.Parallel()
	s := natstest.Run(t, func(o *server.Options) {
		o.Users = []*server.User{{Username: "some", Password: "p", Permissions: &server.Permissions{
			Publish: &server.SubjectPermission{Deny: []string{"no.>"}},
		}}}
	})
	complained := make(chan error, 1)
	nc := natstest.Connect(t, s.ClientURL(), nats.UserInfo("some", "p"), nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) {
		complained <- err
	}))
	w, began := wire.NewWire(natstest.JetStream(t, nc)), time.Now()
	if err := nc.Publish("no.x", nil); err != nil {
		t.Fatal(err)
	}
	<-complained // after the link has recorded it
	if err := w.WithComplaints("some.subject", began, nil); err != nil {
		t.Errorf("a success became %v", err)
	}
}

// A connection's owner may set another error handler at any time.
func TestNextWireOfAConnectionReceivesComplaintsAgain(t *testing.T) {
	t.Parallel()
	s := natstest.Run(t, func(o *server.Options) {
		o.Users = []*server.User{{Username: "some", Password: "p", Permissions: &server.Permissions{
			Publish: &server.SubjectPermission{Deny: []string{"no.>"}},
		}}}
	})
	nc := natstest.Connect(t, s.ClientURL(), nats.UserInfo("some", "p"))
	js := natstest.JetStream(t, nc)
	first := wire.NewWire(js)
	complained := make(chan error, 2)
	nc.SetErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { complained <- err })
	for _, w := range []wire.Wire{wire.NewWire(js), wire.NewWire(js), first} {
		began := time.Now()
		if err := nc.Publish("no.x", nil); err != nil {
			t.Fatal(err)
		}
		<-complained // after the link has recorded it
		if about, _ := w.Link().ComplaintSince(began, "no.x"); about == nil {
			t.Error("the complaint is not recorded")
		}
	}
	if len(complained) > 0 {
		t.Error("the owner's handler was called twice for one complaint")
	}
}

func TestClosedConnectionsAreForgotten(t *testing.T) {
	t.Parallel()
	s := natstest.Run(t)
	nc := natstest.Connect(t, s.ClientURL())
	js := natstest.JetStream(t, nc)
	wire.NewWire(js)
	if !wire.Remembers(nc) {
		t.Error("an open connection has no transport")
	}
	nc.Close()
	natstest.Eventually(t, "the closed connection is forgotten", func() bool { return !wire.Remembers(nc) })
	wire.NewWire(js)
	if wire.Remembers(nc) {
		t.Error("a wire of a closed connection is remembered")
	}
}
