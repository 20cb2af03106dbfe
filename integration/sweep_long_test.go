//go:build long && unix

package integration

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// The stream of slots is purged when it has the messages of these slots: one waits for its next attempt, one runs on a
// worker that is then killed, some wait for their turn, one was not delivered yet, and a triggered run waits in the
// lock of its job on a worker that is then killed. The sweep publishes a message for each, and each succeeds. Only the
// triggered run fails, because its payload is lost with its message.
func TestPurgedSlotsAreFoundAndEnded(t *testing.T) {
	t.Parallel()
	s := newServedSite(t)
	instant := soon().UTC()
	plan := func(name, more string) string {
		return "name: " + name + ", queue: " + name + ", " + at(instant) + ", " + more
	}
	file := s.jobs(`echo "start $CRONCE_JOB $CRONCE_ATTEMPT" >>touched
case "$CRONCE_JOB $CRONCE_ATTEMPT" in
"retries 1") exit 1 ;;
"dies 1"|"locked 1") sleep 300 ;;
"waits 1") [ -e first ] || { touch first; sleep 300; } ;;
esac`,
		plan("retries", "retry: {attempts: 3, backoff: 20s, max_backoff: 20s}"),
		plan("dies", "retry: {attempts: 3}"),
		fmt.Sprintf("name: waits, queue: waits, schedule: '*/5 * * * * *', from: '%s', until: '%s', overlap: queue",
			instant.Format(time.RFC3339), instant.Add(10*time.Second).Format(time.RFC3339)),
		plan("unseen", "retry: {attempts: 3}"),
		"name: locked, queue: locked, schedule: '@at 2099-01-01T00:00:00Z', overlap: queue")
	producer := s.start("producer", "run", "--node", "producer", "--lease", lease.String())
	producer.says("node is up")
	workers := map[string]*process{}
	for _, queue := range []string{"retries", "dies", "waits", "locked"} {
		workers[queue] = s.worker(queue, file, "--queue", queue)
	}
	eventually(t, "the job", func() bool {
		_, err := s.bucket("jobs").Get(t.Context(), "locked")
		return err == nil
	})
	for _, key := range []string{"first", "second"} {
		s.command(0, "job", "trigger", "locked", "--key", key)
		eventually(t, "the "+key+" run in its job's lock", func() bool {
			lock, err := s.bucket("state").Get(t.Context(), "lock.locked")
			return err == nil && strings.Contains(string(lock.Value()), "@"+key)
		})
	}
	eventually(t, "all to begin", func() bool {
		lines := s.touched()
		return count(lines, "start retries 1") == 1 && count(lines, "start dies 1") == 1 && count(lines, "start waits 1") >= 1 &&
			time.Now().After(instant.Add(12*time.Second))
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
	eventually(t, "all slots to end", func() bool {
		done := map[string]int{}
		for _, row := range s.slots() {
			if row.State == "succeeded" {
				done[row.Job]++
			}
			if row.ID == "locked:@second" && row.State == "failed" {
				done["failed"]++
			}
		}
		return done["locked"] == 1 && done["failed"] == 1 && done["retries"] == 1 && done["dies"] == 1 && done["unseen"] == 1 && done["waits"] >= 2
	})
	for _, row := range s.slots() {
		if row.State != "succeeded" && row.ID != "locked:@second" {
			t.Errorf("%s is %s", row.ID, row.State)
		}
	}
}
