//go:build long && unix

package integration

import (
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/cronce-io/cronce/internal/lab/natstest"
)

// Two workers call a service that is killed in the middle of its work, and comes back. Every slot succeeds. By the
// idempotency key, the service does the work of each slot once.
func TestSidecarBesideAServiceThatIsKilledSucceedsOnceForEachSlot(t *testing.T) {
	t.Parallel()
	s := newServedSite(t)
	addr := natstest.FreeAddress(t)
	file := s.write("jobs.yaml", fmt.Sprintf(`version: 1
jobs:
  - name: work
    schedule: "* * * * * *"
    queue: http
    overlap: allow
    timeout: 10s
    retry: {attempts: 50, backoff: 100ms, max_backoff: 500ms}
    payload: {format: pdf}
    action: {http: {url: "http://%s/work", ready: "http://%s/ready"}}
  - name: ask
    schedule: "* * * * * *"
    queue: nats
    overlap: allow
    retry: {attempts: 50, backoff: 100ms, max_backoff: 500ms}
    action: {nats: {subject: svc.ask}}
`, addr, addr))
	asked := s.answerEverySecondTime("svc.ask")
	service := s.service(addr)
	a, b := s.worker("a", file), s.worker("b", file)
	a.says("node is up")
	b.says("node is up")
	for range 2 {
		s.works(2)
		service.kill()
		eventually(t, "both workers to refuse slots", func() bool { return refuses(a) && refuses(b) })
		service = s.service(addr)
		eventually(t, "both workers to take slots again", func() bool { return !refuses(a) && !refuses(b) })
	}
	s.works(3)
	term(a)
	term(b)

	done := map[string]int{}
	for _, key := range s.lines("done") {
		done[key]++
	}
	for _, row := range s.slots() {
		if row.State == "pending" || row.State == "retrying" {
			continue // the workers ended before it could run
		}
		if row.State != "succeeded" {
			t.Errorf("%s is %s: %s", row.ID, row.State, row.Error)
		}
		switch n := done[row.ID]; {
		case row.Job == "work" && n != 1:
			t.Errorf("%s: the service did its work %d times, want once", row.ID, n)
		case row.Job == "work" && !strings.Contains(row.Output, `{"format":"pdf"}`):
			t.Errorf("%s: output %q", row.ID, row.Output)
		case row.Job == "ask" && (row.Attempt != 2 || row.Output != "yes" || asked(row.ID) != 2):
			t.Errorf("%s: attempt %d, output %q, asked %d times", row.ID, row.Attempt, row.Output, asked(row.ID))
		}
	}
	if len(done) < 7 {
		t.Errorf("only %d slots", len(done))
	}
}

// answerEverySecondTime serves a subject. It answers the first request of each slot with an error. asked returns the
// number of requests of a slot.
func (s *site) answerEverySecondTime(subject string) (asked func(id string) int) {
	s.t.Helper()
	var mu sync.Mutex
	times := map[string]int{}
	_, err := s.nc.Subscribe(subject, func(m *nats.Msg) {
		mu.Lock()
		defer mu.Unlock()
		id := m.Header.Get("Idempotency-Key")
		times[id]++
		answer := nats.NewMsg(m.Reply)
		answer.Data = []byte("yes")
		if times[id] == 1 {
			answer.Header.Set("Nats-Service-Error-Code", "503")
		}
		_ = m.RespondMsg(answer)
	})
	if err != nil {
		s.t.Fatal(err)
	}
	return func(id string) int {
		mu.Lock()
		defer mu.Unlock()
		return times[id]
	}
}

// works waits until the service has done the work of n more slots.
func (s *site) works(n int) {
	s.t.Helper()
	until := len(s.lines("done")) + n
	eventually(s.t, "more slots", func() bool { return len(s.lines("done")) >= until })
}

// refuses reports whether the worker takes no slots now, because its service is not ready.
func refuses(w *process) bool {
	return strings.Count(w.stderr(), "service not ready") > strings.Count(w.stderr(), "this node takes slots again")
}

// The service answers with the request that it got. No secret of the request is in a log, in the output of a
// command, or on the broker.
func TestSecretsOfActionsAreNotStoredOrLogged(t *testing.T) {
	t.Parallel()
	s := newServedSite(t)
	addr := natstest.FreeAddress(t)
	s.service(addr)
	key := s.write("key", "key-4711\n")
	file := s.write("jobs.yaml", fmt.Sprintf(`version: 1
jobs:
  - name: work
    schedule: "* * * * * *"
    overlap: allow
    action:
      http:
        url: "http://ada:word-4711@%s/work?query-4711"
        headers: {X-Token: {prefix: "Bearer ", env: API_TOKEN}, X-Key: {file: %s}}
        ready: "http://ada:word-4711@%s/ready?query-4711"
  - name: lost
    schedule: "* * * * * *"
    overlap: allow
    retry: {attempts: 1}
    action: {http: {url: "http://ada:word-4711@%s/nowhere?query-4711"}}
`, addr, key, addr, addr))
	missing := s.start("missing", "run", "-f", file)
	refusal{status: 1, says: []string{"job work: header X-Token: environment variable API_TOKEN is not set"}}.check(t, missing)

	env := append(s.env(), "API_TOKEN=token-4711")
	w := start(t, "worker", env, s.as, program(t, cronce), "run", "-f", file, "--server", s.url, "--log-level", "debug")
	s.works(2)
	w.says("status 404")
	term(w)

	found := map[string]string{"the worker's log": w.stderr()}
	check := s.start("check", "check", file)
	check.exit()
	found["cronce check"] = check.stdout() + check.stderr()
	for _, row := range s.slots() {
		found["slot "+row.ID] = row.Output + row.Error
		// The record has the request as it was sent, except for the secrets.
		if row.Job == "work" && row.State == "succeeded" && !strings.Contains(row.Output, "X-Token: Bearer [hidden]") {
			t.Errorf("%s: output %q", row.ID, row.Output)
		}
	}
	for _, name := range []string{"KV_cronce_ledger", "KV_cronce_jobs", "KV_cronce_nodes", "cronce_slots", "cronce_events"} {
		found[name] = s.everything(name)
	}
	if !strings.Contains(found["KV_cronce_ledger"], "hidden") || !strings.Contains(found["KV_cronce_jobs"], "lost") {
		t.Error("the buckets do not have what the test looks for: it reads the wrong streams")
	}
	for where, text := range found {
		for _, secret := range []string{"token-4711", "key-4711", "word-4711", "YWRhOndvcmQtNDcxM"} {
			if i := strings.Index(text, secret); i >= 0 {
				t.Errorf("%s shows %s: ...%s", where, secret, text[max(0, i-100):i+len(secret)])
			}
		}
		if i := strings.Index(text, "query-4711"); i >= 0 && !strings.Contains(text[max(0, i-100):i], "POST /work?") {
			t.Errorf("%s shows the URL's query: ...%s", where, text[max(0, i-100):i+10])
		}
	}
}

// everything returns all messages of a stream as one text.
func (s *site) everything(stream string) string {
	s.t.Helper()
	st, err := s.js.Stream(s.t.Context(), stream)
	if err != nil {
		s.t.Fatal(err)
	}
	var all strings.Builder
	info := st.CachedInfo().State
	for seq := info.FirstSeq; seq <= info.LastSeq; seq++ {
		msg, err := st.GetMsg(s.t.Context(), seq)
		if err == jetstream.ErrMsgNotFound {
			continue
		}
		if err != nil {
			s.t.Fatal(err)
		}
		fmt.Fprintf(&all, "%s %v ", msg.Subject, msg.Header)
		_, _ = io.WriteString(&all, string(msg.Data)+"\n")
	}
	return all.String()
}
