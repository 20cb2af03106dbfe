//go:build long && unix

package integration

import (
	"strings"
	"testing"
	"time"
)

// The stream of slots is purged while one slot waits for its turn, one runs
// under a worker that dies, one waits for its next attempt, one was triggered and
// waits in its job's lock under a worker that dies, and one has not come to a worker
// yet. Each ends within two minutes of when it should have moved.
func TestPurgedSlotsAreFoundAndEnded(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.startServer("127.0.0.1:0")
	s.connect()
	soon := time.Now().Add(4 * time.Second).UTC().Truncate(time.Second)
	plan := func(name, more string, after time.Duration) string {
		return "name: " + name + ", queue: " + name + ", schedule: '@at " + soon.Add(after).Format(time.RFC3339) + "', " + more
	}
	file := s.jobs(`echo "start $CRONCE_JOB $CRONCE_ATTEMPT" >>touched
case "$CRONCE_JOB $CRONCE_ATTEMPT" in
"retries 1") exit 1 ;;
"dies 1"|"locked 1") sleep 300 ;;
"waits 1") [ -e first ] || { touch first; sleep 20; } ;;
esac`,
		plan("retries", "retry: {attempts: 3, backoff: 20s, max_backoff: 20s}", 0),
		plan("dies", "retry: {attempts: 3}", 0),
		"name: waits, queue: waits, schedule: '*/5 * * * * *', until: '"+soon.Add(10*time.Second).Format(time.RFC3339)+"', overlap: queue",
		plan("unseen", "retry: {attempts: 3}", 0),
		"name: locked, queue: locked, schedule: '@at 2099-01-01T00:00:00Z', overlap: queue")
	producer := s.start("producer", "run", "--node", "producer", "--lease", lease.String())
	eventually(t, "the producer", func() bool { return strings.Contains(producer.stderr(), "node is up") })
	workers := map[string]*process{}
	for _, queue := range []string{"retries", "dies", "waits", "locked"} {
		workers[queue] = s.worker(queue, file, "--queue", queue)
	}
	state, err := s.js.KeyValue(t.Context(), "cronce_state")
	if err != nil {
		t.Fatal(err)
	}
	jobs, err := s.js.KeyValue(t.Context(), "cronce_jobs")
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "the job", func() bool {
		_, err := jobs.Get(t.Context(), "locked")
		return err == nil
	})
	for _, key := range []string{"first", "second"} {
		s.command(0, "job", "trigger", "locked", "--key", key)
		eventually(t, "the "+key+" run in its job's lock", func() bool {
			lock, err := state.Get(t.Context(), "lock.locked")
			return err == nil && strings.Contains(string(lock.Value()), "@"+key)
		})
	}
	eventually(t, "all to have begun", func() bool {
		lines := s.touched()
		return count(lines, "start retries 1") == 1 && count(lines, "start dies 1") == 1 && count(lines, "start waits 1") >= 1 &&
			time.Now().After(soon.Add(12*time.Second))
	})
	workers["dies"].kill()
	workers["locked"].kill()
	stream, err := s.js.Stream(t.Context(), "cronce_slots")
	if err != nil {
		t.Fatal(err)
	}
	if err := stream.Purge(t.Context()); err != nil {
		t.Fatal(err)
	}
	workers["waits"].kill()
	for _, name := range []string{"dies2", "waits2", "locked2", "unseen"} {
		s.worker(name, file, "--queue", strings.TrimSuffix(name, "2"))
	}
	eventually(t, "each slot to end, one of them after another", func() bool {
		done := map[string]int{}
		for _, row := range s.slots() {
			if row.State == "succeeded" {
				done[row.Job]++
			}
			if row.ID == "locked:@second" && row.State == "failed" {
				done["lost"]++
			}
		}
		return done["locked"] == 1 && done["lost"] == 1 && done["retries"] == 1 && done["dies"] == 1 && done["unseen"] == 1 && done["waits"] >= 2
	})
	for _, row := range s.slots() {
		if row.State != "succeeded" && row.ID != "locked:@second" {
			t.Errorf("%s is %s", row.ID, row.State)
		}
	}
}
