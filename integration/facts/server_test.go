package facts_test

import (
	"fmt"
	"net/url"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/cronce-io/cronce/internal/lab/natstest"
)

// TestServerThatDoesNotListenForClientsNeverListensForRoutes is fact 9: the routes wait for the listener
// of the clients. So a server that has only in-process clients, and no listener, is never part of a
// cluster. It reports no error, and never becomes ready.
//
// Decision: each server that we run in a process as part of a cluster listens on loopback
// (internal/lab/natstest), and the embedded server always listens (internal/natsconn/embed). If the test
// fails, a cluster in one process needs no client ports.
func TestServerThatDoesNotListenForClientsNeverListensForRoutes(t *testing.T) {
	t.Parallel()
	start := func(o server.Options) *server.Server {
		o.NoSigs, o.NoLog = true, true
		s, err := server.NewServer(&o)
		if err != nil {
			t.Fatal(err)
		}
		s.Start()
		t.Cleanup(func() { go s.Shutdown() }) // never ends for one of them
		return s
	}
	deaf := start(server.Options{DontListen: true, Cluster: server.ClusterOpts{Name: "facts", Host: "127.0.0.1", Port: server.RANDOM_PORT}})
	alone := start(server.Options{DontListen: true})
	listening := start(server.Options{
		Host: "127.0.0.1", Port: server.RANDOM_PORT,
		Cluster: server.ClusterOpts{Name: "facts", Host: "127.0.0.1", Port: server.RANDOM_PORT},
	})
	if !alone.ReadyForConnections(limit) || !listening.ReadyForConnections(limit) {
		t.Fatal("a server with clients or routes alone does not come up")
	}
	if deaf.ReadyForConnections(2*time.Second) || deaf.ClusterAddr() != nil {
		t.Errorf("a server that does not listen for clients listens for routes on %v", deaf.ClusterAddr())
	}
}

// TestClientOfADomainHasToPrefixRawKeys is fact 17: the client library sends its own requests, and those
// of its KV, into the domain for which it was made. But a message that a client publishes to a key's
// subject itself goes to the local subscribers. And if streams on both sides of a leaf node listen on a
// subject, both store a message that is published to it, and either of them answers.
//
// Decision: writes have the prefix of the API before the key's subject, and an answer from another domain
// is an error (Wire.Misplaced in internal/broker/wire). If the test fails, check that the prefix still
// works before it goes.
func TestClientOfADomainHasToPrefixRawKeys(t *testing.T) {
	t.Parallel()
	hub := natstest.Run(t, func(o *server.Options) {
		o.ServerName, o.JetStreamDomain = "hub", "hub"
		o.LeafNode.Host, o.LeafNode.Port = "127.0.0.1", server.RANDOM_PORT
	})
	v, err := hub.Varz(nil)
	if err != nil {
		t.Fatal(err)
	}
	leaf := natstest.Run(t, func(o *server.Options) {
		o.ServerName, o.JetStreamDomain = "leaf", "leaf"
		o.LeafNode.Remotes = []*server.RemoteLeafOpts{{URLs: []*url.URL{{Scheme: "nats-leaf", Host: fmt.Sprintf("127.0.0.1:%d", v.LeafNode.Port)}}}}
	})
	nc := leaf.Conn()
	there, err := jetstream.NewWithDomain(nc, "hub")
	if err != nil {
		t.Fatal(err)
	}
	here := natstest.JetStream(t, nc)
	natstest.Eventually(t, "the hub to answer at the leaf", func() bool {
		_, err := there.AccountInfo(within(t, time.Second))
		return err == nil
	})

	kv := bucket(t, there, jetstream.KeyValueConfig{Bucket: "fact17"})
	if _, err := kv.Put(within(t, limit), "k", nil); err != nil {
		t.Errorf("a put through the domain: %v", err)
	}
	if ack, err := there.Publish(within(t, limit), "$KV.fact17.k", nil); err == nil {
		t.Errorf("a message on the key's own subject arrived: %+v", ack)
	}
	if ack, err := there.Publish(within(t, limit), "$JS.hub.API.$KV.fact17.k", nil); err != nil || ack.Domain != "hub" {
		t.Errorf("a message on the key's subject in the domain: %+v, %v", ack, err)
	}

	both := jetstream.StreamConfig{Name: "both", Subjects: []string{"both"}}
	s, other := stream(t, here, both), stream(t, there, both)
	publish(t, here, "both") // answered by the first of both
	natstest.Eventually(t, "both sides to store one message", func() bool { return messages(t, s) == 1 && messages(t, other) == 1 })
}

// accounts is an application that uses the JetStream of another account, which
// exports its API with or without a response type.
const accounts = `accounts {
	OWNER: {
		jetstream: enabled
		users: [{user: owner, password: x}]
		exports: [{service: "$JS.API.>" %s}, {service: "$JS.ACK.>"}, {service: "fact18.>"}, {service: "$KV.>"}]
	}
	APP: {
		users: [{user: app, password: x}]
		imports: [
			{service: {account: OWNER, subject: "$JS.API.>"}, to: "OWNER.API.>"}
			{service: {account: OWNER, subject: "$JS.ACK.>"}}
			{service: {account: OWNER, subject: "fact18.>"}}
			{service: {account: OWNER, subject: "$KV.>"}, to: "OWNER.API.$KV.>"}
		]
	}
}`

// TestImportedAPIDeliversOneMessageForEachPull is fact 18: a service import lets one answer to a request
// through, unless its export says response_type: stream, and a pull is one request with many answers. Even
// then an empty message counts as the end. A watch with a push consumer stays silent in any case, without
// an error.
//
// Decision: the exports that "cronce auth --accounts" prints for pulls and direct gets have this type
// (Export.Many in internal/broker/layout), messages of slots always have headers, and Cronce uses no push
// consumers (docs/decisions/0006). If the test fails, these exports may be plain.
func TestImportedAPIDeliversOneMessageForEachPull(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, responses, body string
		want                  int
	}{
		{"a plain export", "", "body", 1},
		{"an export of streams", ", response_type: stream", "body", 3},
		{"an export of streams, empty messages", ", response_type: stream", "", 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			one := natstest.Run(t, func(o *server.Options) {
				if err := o.ProcessConfigString(fmt.Sprintf(accounts, c.responses)); err != nil {
					t.Fatal(err)
				}
			})
			owner := one.JetStream(nats.UserInfo("owner", "x"))
			app, err := jetstream.NewWithAPIPrefix(one.Conn(nats.UserInfo("app", "x")), "OWNER.API")
			if err != nil {
				t.Fatal(err)
			}
			queue(t, owner, "fact18", 1)
			for range 3 {
				if _, err := app.Publish(within(t, limit), "fact18.a", []byte(c.body)); err != nil {
					t.Fatal(err)
				}
			}
			s, err := app.Stream(within(t, limit), "fact18")
			if err != nil {
				t.Fatal(err)
			}
			if got := fetched(t, worker(t, s, jetstream.ConsumerConfig{}), 3); got != c.want {
				t.Errorf("a pull for 3 got %d messages, want %d", got, c.want)
			}
			silent(t, bucket(t, owner, jetstream.KeyValueConfig{Bucket: "fact18"}), app)
		})
	}
}

// fetched returns how many of n messages one pull gets in two seconds.
func fetched(t *testing.T, c jetstream.Consumer, n int) (got int) {
	t.Helper()
	batch, err := c.Fetch(n, jetstream.FetchMaxWait(2*time.Second))
	if err != nil {
		t.Fatal(err)
	}
	for range batch.Messages() {
		got++
	}
	return got
}

// silent watches a bucket through the import and as its owner. Only the owner may see a put of the
// application.
func silent(t *testing.T, kv jetstream.KeyValue, app jetstream.JetStream) {
	t.Helper()
	imported, err := app.KeyValue(within(t, limit), kv.Bucket())
	if err != nil {
		t.Fatal(err)
	}
	watch := func(kv jetstream.KeyValue) jetstream.KeyWatcher {
		w, err := kv.Watch(within(t, limit), "k", jetstream.UpdatesOnly())
		if err != nil {
			t.Fatal(err)
		}
		return w
	}
	theirs, ours := watch(imported), watch(kv)
	if _, err := imported.Create(within(t, limit), "k", nil); err != nil {
		t.Fatalf("create a key through the import: %v", err)
	}
	select {
	case <-ours.Updates():
	case <-within(t, limit).Done():
		t.Fatal("the owner sees nothing")
	}
	select {
	case e := <-theirs.Updates():
		t.Errorf("the application sees %v", e)
	default:
	}
}

// TestAnswersAreSentWhereverTheRequestSays is fact 22: the server checks what a client may publish to, and
// not the reply subject of what it publishes. So a login that may only read a bucket can have the server
// copy what it reads into another.
//
// Decision: logins that must not harm each other are in accounts of their own (docs/decisions/0006), and
// docs/threat-model.md says so. If the test fails, roles within one account hold against hostile logins
// too, and the page can say so.
func TestAnswersAreSentWhereverTheRequestSays(t *testing.T) {
	t.Parallel()
	s := natstest.Run(t, func(o *server.Options) {
		o.Users = []*server.User{
			{Username: "admin", Password: "p"},
			{Username: "reader", Password: "p", Permissions: &server.Permissions{
				Publish:   &server.SubjectPermission{Allow: []string{"$JS.API.DIRECT.GET.KV_a"}},
				Subscribe: &server.SubjectPermission{Allow: []string{"_INBOX.>"}},
			}},
		}
	})
	js := s.JetStream(nats.UserInfo("admin", "p"))
	bucket := func(name string) jetstream.KeyValue {
		b, err := js.CreateKeyValue(t.Context(), jetstream.KeyValueConfig{Bucket: name})
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	a, b := bucket("a"), bucket("b")
	if _, err := a.PutString(t.Context(), "k", "copied"); err != nil {
		t.Fatal(err)
	}
	reader := s.Conn(nats.UserInfo("reader", "p"))
	if err := reader.Publish("$KV.b.k", []byte("written")); err != nil {
		t.Fatal(err)
	}
	if err := reader.PublishRequest("$JS.API.DIRECT.GET.KV_a", "$KV.b.k", []byte(`{"last_by_subj":"$KV.a.k"}`)); err != nil {
		t.Fatal(err)
	}
	natstest.Eventually(t, "the answer to be stored", func() bool {
		e, err := b.Get(t.Context(), "k")
		return err == nil && string(e.Value()) == "copied" && e.Revision() == 1
	})
}
