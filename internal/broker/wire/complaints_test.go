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
