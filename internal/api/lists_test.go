package api_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/cronce-io/cronce/client"
	"github.com/cronce-io/cronce/internal/api"
	"github.com/cronce-io/cronce/internal/api/row"
	"github.com/cronce-io/cronce/internal/core"
	"github.com/cronce-io/cronce/internal/core/exchange"
	"github.com/cronce-io/cronce/internal/core/plans"
	"github.com/cronce-io/cronce/internal/lab/natstest"
	"github.com/cronce-io/cronce/job"
)

// pages requests all pages. more is added to each request.
func pages[T interface{ Cursor() client.Cursor }](t *testing.T, nc *nats.Conn, endpoint, more string) (rows []T, answers int) {
	t.Helper()
	after := ""
	for {
		var page row.Page[T]
		if code, text := ask(t, nc, endpoint, fmt.Sprintf(`{"after":%q%s}`, after, more), &page); code != "" {
			t.Fatalf("%s: %s %s", endpoint, code, text)
		}
		rows, answers = append(rows, page.Rows...), answers+1
		if len(page.Unreadable) > 0 {
			t.Errorf("%s cannot read %q", endpoint, page.Unreadable)
		}
		if page.Next == "" {
			return rows, answers
		}
		if page.Next <= after {
			t.Fatalf("%s goes on at %q after %q", endpoint, page.Next, after)
		}
		after = page.Next
	}
}

// Any client can read a listing page by page, complete and in order, although the server
// limits the size of an answer.
func TestListsOverNATS(t *testing.T) {
	t.Parallel()
	s := natstest.Run(t, func(o *server.Options) { o.MaxPayload = 16 << 10 })
	store := serve(t, s.Conn(), "n1")
	serve(t, s.Conn(), "n2")
	nc := s.Conn()
	var names, ids, nodes []string
	for i := range 7 {
		d := plans.Definition{Job: job.Job{Name: fmt.Sprint("job", 7-i), Schedule: "0 7 * * *", Timezone: "Europe/Berlin"}, Owner: plans.OwnerOperator, Nonce: "n"}
		if _, err := store.Jobs().Write(t.Context(), d, 0); err != nil {
			t.Fatal(err)
		}
		n := exchange.Node{Name: fmt.Sprint("node", i), State: exchange.NodeAlive, Started: time.Unix(int64(i), 0), Lease: time.Hour, Worker: true, Queues: []string{job.DefaultQueue}, Nonce: "n"}
		list := exchange.Handlers{Node: n.Name, Jobs: []string{"job1"}, Nonce: "n"}
		if _, err := store.HandlerLists().Write(t.Context(), list, 0); err != nil {
			t.Fatal(err)
		}
		if _, err := store.Nodes().Write(t.Context(), n, 0); err != nil {
			t.Fatal(err)
		}
		names, nodes = append(names, d.Job.Name), append(nodes, n.Name)
	}
	first := time.Date(2026, 3, 28, 8, 0, 0, 0, time.UTC)
	ended := time.Date(2026, 3, 28, 12, 30, 0, 0, time.UTC)
	for i := range 12 {
		slot := job.NewSlot("job1", first.Add(time.Duration(i)*time.Hour))
		ids = append(ids, slot.ID())
		if i%3 == 2 { // waits
			if _, err := store.Slots().Publish(t.Context(), job.DefaultQueue, core.Message{Slot: slot, Due: slot.At, Node: "n"}, nil); err != nil {
				t.Fatal(err)
			}
			continue
		}
		r := job.Record{Slot: slot, State: job.Failed, Node: "n", Nonce: "n", Due: slot.At, Error: "boom", Output: strings.Repeat("<\x01", 400)}
		if i == 6 {
			r.Finished = ended
		}
		if _, err := store.Ledger().Write(t.Context(), r, 0); err != nil {
			t.Fatal(err)
		}
	}

	for _, limit := range []string{"", `,"limit":1`, `,"limit":3`, `,"limit":1000000000`} {
		jobs, _ := pages[client.JobRow](t, nc, "job.ls", limit)
		if got := texts(jobs, func(j client.JobRow) string { return j.Job }); !slices.Equal(got, names) {
			t.Errorf("%s: jobs %q, want %q", limit, got, names)
		}
		if j := jobs[len(jobs)-1]; j.Handlers != 7 || j.LastState != job.Failed || !j.Last.Equal(first.Add(10*time.Hour)) || !j.Next.After(time.Now()) {
			t.Errorf("%s: job %+v", limit, j)
		}
		slots, answers := pages[client.SlotRow](t, nc, "slot.ls", limit)
		if got := texts(slots, func(s client.SlotRow) string { return s.ID }); !slices.Equal(got, ids) || answers < 2 {
			t.Errorf("%s: slots %q in %d answers, want %q in several", limit, got, answers, ids)
		}
		if len(slots) == len(ids) && (slots[0].Output == "" || slots[2].State != job.Pending) {
			t.Errorf("%s: slots %+v", limit, slots)
		}
		all, _ := pages[client.NodeRow](t, nc, "node.ls", limit)
		if got := texts(all, func(n client.NodeRow) string { return n.Node }); !slices.Equal(got, nodes) {
			t.Errorf("%s: nodes %q, want %q", limit, got, nodes)
		}
	}
	some, _ := pages[client.SlotRow](t, nc, "slot.ls", `,"job":"job1","states":["pending"],"since":"2026-03-28T12:00:00Z","limit":2`)
	if got, want := texts(some, func(s client.SlotRow) string { return s.ID }), []string{ids[5], ids[8], ids[11]}; !slices.Equal(got, want) {
		t.Errorf("filtered: %q, want %q", got, want)
	}
	for at, want := range map[time.Time][]string{ended: {ids[6]}, ended.Add(time.Second): nil} {
		some, _ = pages[client.SlotRow](t, nc, "slot.ls", fmt.Sprintf(`,"job":"job1","ended_since":%q`, at.Format(time.RFC3339)))
		if got := texts(some, func(s client.SlotRow) string { return s.ID }); !slices.Equal(got, want) {
			t.Errorf("ended since %v: %q, want %q", at, got, want)
		}
	}

	var next api.ComingSlots
	if code, text := ask(t, nc, "job.next", `{"job":"job1","from":"2026-03-27T07:00:00Z","until":"2026-03-31T00:00:00Z","count":2}`, &next); code != "" || len(next.Slots) != 2 || next.Paused || next.Start != "0 7 * * *" {
		t.Fatalf("next: %s %s", code, text)
	}
	if at := next.Slots[1]; !at.Slot.Equal(time.Date(2026, 3, 29, 5, 0, 0, 0, time.UTC)) || at.Local.Format(time.RFC3339) != "2026-03-29T07:00:00+02:00" {
		t.Errorf("the day the clocks change: %+v", at)
	}
	if code, text := ask(t, nc, "job.next", `{"job":"job1","from":"2026-03-29T05:00:00Z","until":"2026-03-31T00:00:00Z"}`, &next); code != "" || len(next.Slots) != 1 {
		t.Errorf("the rest of them: %s %s", code, text)
	}
	if code, text := ask(t, nc, "job.next", `{"job":"job1"}`, &next); code != "" || len(next.Slots) != 10 {
		t.Errorf("from now: %s %s", code, text)
	}
}

func texts[T any](rows []T, of func(T) string) (all []string) {
	for _, row := range rows {
		all = append(all, of(row))
	}
	return all
}
