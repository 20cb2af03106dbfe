package api_test

import (
	"bufio"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/cronce-io/cronce/client"
	"github.com/cronce-io/cronce/internal/codec"
	"github.com/cronce-io/cronce/internal/lab/apitest"
	"github.com/cronce-io/cronce/internal/lab/kvtest"
	"github.com/cronce-io/cronce/internal/lab/natstest"
	"github.com/cronce-io/cronce/internal/web/api"
	"github.com/cronce-io/cronce/job"
	"github.com/cronce-io/cronce/kv"
)

// stream is an open event stream.
type stream struct {
	t      *testing.T
	lines  *bufio.Scanner
	cancel context.CancelFunc
	body   io.Closer
}

func listen(t *testing.T, server *httptest.Server, query, last string) (*stream, int) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, server.URL+"/api/v1/events"+query, nil)
	if err != nil {
		t.Fatal(err)
	}
	if last != "" {
		r.Header.Set("Last-Event-ID", last)
	}
	w, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	s := &stream{t, bufio.NewScanner(w.Body), cancel, w.Body}
	t.Cleanup(s.close)
	return s, w.StatusCode
}

func (s *stream) close() { s.cancel(); s.body.Close() }

// next returns the fields of the next frame that is not a comment.
func (s *stream) next() map[string]string {
	s.t.Helper()
	frame := map[string]string{}
	for s.lines.Scan() {
		name, value, ok := strings.Cut(s.lines.Text(), ": ")
		switch {
		case ok && name != "":
			frame[name] = value
		case s.lines.Text() == "" && len(frame) > 0:
			return frame
		}
	}
	return nil
}

// upTo returns the kinds of the frames up to one whose data has the text, and that frame's id.
func (s *stream) upTo(text string) (kinds []string, id string) {
	s.t.Helper()
	for f := s.next(); f != nil; f = s.next() {
		if f["event"] != "" {
			kinds = append(kinds, f["event"])
		}
		if strings.Contains(f["data"], text) {
			return kinds, f["id"]
		}
	}
	s.t.Fatalf("the stream ended before %s: %q", text, kinds)
	return nil, ""
}

// A browser continues at another replica after the last event that it has received.
func TestEventsGoOnAtAnotherReplica(t *testing.T) {
	t.Parallel()
	server, c := apitest.Serve(t)
	other := api.New(api.Config{Client: c})
	replica := httptest.NewServer(other)
	defer replica.Close()
	defer other.Close() // first: it ends the streams

	first, _ := listen(t, server, "", "")
	began := first.next()
	if began["id"] == "" || began["retry"] == "" {
		t.Errorf("the stream begins with %v", began)
	}
	if _, err := c.Pause(t.Context(), "quick"); err != nil {
		t.Fatal(err)
	}
	_, last := first.upTo(`"order":"pause"`)
	if last == "" {
		t.Error("a kept event has no id")
	}
	if _, err := c.Trigger(t.Context(), "quick", client.TriggerOptions{Key: "k"}); err != nil {
		t.Fatal(err)
	}
	if kinds, id := first.upTo(`"kind":"succeeded"`); !slices.Contains(kinds, "succeeded") || id != "" {
		t.Errorf("kinds %q, id %q of one that is not kept", kinds, id)
	}
	first.close()

	// While no client listens.
	if _, err := c.Resume(t.Context(), "quick", client.ResumeOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Trigger(t.Context(), "broken", client.TriggerOptions{Key: "k"}); err != nil {
		t.Fatal(err)
	}
	natstest.Eventually(t, "what the test waits for", func() bool { s, err := c.Slot(t.Context(), "broken:@k"); return err == nil && s.State == job.Failed })

	second, _ := listen(t, replica, "?kind=ordered,failed", last)
	var data []string
	for len(data) < 4 {
		f := second.next()
		if f == nil {
			break
		}
		if f["data"] != "" {
			data = append(data, f["data"])
		}
	}
	slices.SortStableFunc(data[min(len(data), 2):], func(x, _ string) int { // the run may fail before its order is sent
		if strings.Contains(x, `"kind":"failed"`) {
			return 1
		}
		return -1
	})
	for i, want := range []string{`"order":"trigger"`, `"order":"resume"`, `"order":"trigger"`, `"kind":"failed"`} {
		if len(data) <= i || !strings.Contains(data[i], want) {
			t.Fatalf("the second stream goes on with %q", data)
		}
	}
	if _, err := c.Pause(t.Context(), "slow"); err != nil {
		t.Fatal(err)
	}
	if kinds, _ := second.upTo(`"job":"slow"`); len(kinds) != 1 {
		t.Errorf("then it has %q", kinds)
	}
	// One from the beginning, of one job.
	all, _ := listen(t, replica, "?job=broken&kind=failed", "0")
	if kinds, _ := all.upTo(`"id":"broken:@k"`); !slices.Equal(kinds, []string{"failed"}) {
		t.Errorf("from the beginning: %q", kinds)
	}
}

// If the broker is created anew, its events have the ids 1, 2, ... again. An open stream goes on with
// them, and a client whose last id is larger begins with the first one.
func TestEventsGoOnWithABrokerThatWasCreatedAnew(t *testing.T) {
	t.Parallel()
	var files string
	broker := natstest.Run(t, func(o *server.Options) { files = o.StoreDir })
	store := kvtest.Open(t, broker.JetStream(), kv.Options{})
	tell := func(id string) {
		if err := store.StoreEvent(t.Context(), job.Event{V: codec.Version, Kind: job.EventFailed, Time: time.Now().UTC(), Node: "web1", ID: id, Job: "report"}); err != nil {
			t.Error(err)
		}
	}
	tell("report:@1")
	tell("report:@2")
	c, err := client.New(t.Context(), broker.Conn())
	if err != nil {
		t.Fatal(err)
	}
	a := api.New(api.Config{Client: c})
	served := httptest.NewServer(a)
	defer served.Close()
	defer a.Close() // first: it ends the streams
	during, _ := listen(t, served, "", "0")
	if _, id := during.upTo(`"id":"report:@2"`); id != "2" {
		t.Errorf("id %q of the second event", id)
	}
	broker.Stop()
	if err := os.RemoveAll(files); err != nil {
		t.Fatal(err)
	}
	broker.Start()
	kvtest.Open(t, store.JS, kv.Options{})
	tell("report:@3")
	if kinds, id := during.upTo(`"id":"report:@3"`); len(kinds) != 1 || id != "1" {
		t.Errorf("the open stream goes on with %q, id %q", kinds, id)
	}
	after, _ := listen(t, served, "", "99")
	if first, again := after.next(), after.next(); first["id"] != "99" || again["id"] != "0" {
		t.Errorf("a stream after an id of the lost broker begins with %v, %v", first, again)
	}
	if kinds, id := after.upTo(`"id":"report:@3"`); len(kinds) != 1 || id != "1" {
		t.Errorf("a stream after an id of the lost broker has %q, id %q", kinds, id)
	}
	tell("report:@4")
	for _, s := range []*stream{during, after} {
		if kinds, id := s.upTo(`"id":"report:@4"`); len(kinds) != 1 || id != "2" {
			t.Errorf("then %q, id %q", kinds, id)
		}
	}
}

func TestEventStreamsAreBoundedAndEndWithTheServer(t *testing.T) {
	t.Parallel()
	s := natstest.Run(t)
	apitest.Fleet(t, s.Conn())
	nc := s.Conn()
	c, err := client.New(t.Context(), nc)
	if err != nil {
		t.Fatal(err)
	}
	a := api.New(api.Config{Client: c})
	server := httptest.NewServer(a)
	defer server.Close()
	defer a.Close()
	subscriptions := nc.NumSubscriptions()
	var open []*stream
	for range 100 {
		s, status := listen(t, server, "", "")
		if status != 200 {
			t.Fatalf("status %d", status)
		}
		s.next()
		open = append(open, s)
	}
	if n := nc.NumSubscriptions() - subscriptions; n > 2 {
		t.Errorf("100 streams have %d subscriptions", n)
	}
	if _, status := listen(t, server, "", ""); status != 503 {
		t.Errorf("one too many has status %d", status)
	}
	open[0].close()
	natstest.Eventually(t, "what the test waits for", func() bool { _, status := listen(t, server, "", ""); return status == 200 })
	for _, bad := range []struct{ query, last string }{{"?kind=dawn", ""}, {"?job=a.b", ""}, {"?job=", ""}, {"?since=1", ""}, {"", "x"}} {
		if _, status := listen(t, server, bad.query, bad.last); status != 400 {
			t.Errorf("%v has status %d", bad, status)
		}
	}
	began := time.Now()
	a.Close()
	for open[1].next() != nil { // frames that were sent before
	}
	if took := time.Since(began); took > natstest.Patience {
		t.Errorf("the end took %v", took)
	}
}
