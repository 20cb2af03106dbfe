package facts_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/cronce-io/cronce/internal/lab/natstest"
)

// gone reports whether the key has no value.
func gone(t *testing.T, kv jetstream.KeyValue, key string) bool {
	t.Helper()
	_, err := kv.Get(within(t, limit), key)
	if err != nil && !errors.Is(err, jetstream.ErrKeyNotFound) {
		t.Fatal(err)
	}
	return err != nil
}

// TestUpdateTakesTheTimeToLiveAway is fact 4: the time to live is a header of one message, and the
// client library's Update sends none. To renew a key that expires, publish a message with the header and
// the expected revision.
//
// Decision: no key of ours has a time to live. The nodes that watch a lease judge whether it has expired
// (internal/fleet/node), and buckets have a maximum age. If the test fails, nothing changes: the
// broker's clock would still judge keys that expire.
func TestUpdateTakesTheTimeToLiveAway(t *testing.T) {
	t.Parallel()
	js := natstest.Run(t).JetStream()
	kv := bucket(t, js, jetstream.KeyValueConfig{Bucket: "fact4", LimitMarkerTTL: time.Second})
	revisions := map[string]uint64{}
	for _, key := range []string{"updated", "renewed"} {
		r, err := kv.Create(within(t, limit), key, nil, jetstream.KeyTTL(time.Second))
		if err != nil {
			t.Fatal(err)
		}
		revisions[key] = r
	}
	if _, err := kv.Update(within(t, limit), "updated", nil, revisions["updated"]); err != nil {
		t.Fatal(err)
	}
	if _, err := put(t, js, "$KV.fact4.renewed", "", "1s", jetstream.WithExpectLastSequencePerSubject(revisions["renewed"])); err != nil {
		t.Fatal(err)
	}
	natstest.Eventually(t, "the renewed key to expire", func() bool { return gone(t, kv, "renewed") })
	if gone(t, kv, "updated") {
		t.Error("the updated key, which was older, has expired too")
	}
}

// TestReplicaAnswersWithTheValueBefore is fact 5: any replica answers a Get, and it may not know yet of a
// write that was acknowledged. The stream's leader knows. (A leader that was deposed without noticing may
// not know either. The test does not show that.)
//
// Decision: single keys are read at the leader, reads are hints, and only won writes decide
// (internal/broker/wire). If the test fails, reads may become cheaper, but still decide nothing.
func TestReplicaAnswersWithTheValueBefore(t *testing.T) {
	t.Parallel()
	js := onThree(t, "KV_fact5")
	kv := bucket(t, js, jetstream.KeyValueConfig{Bucket: "fact5", Replicas: 3})
	// Followers answer from some two seconds after the creation on.
	natstest.Eventually(t, "a Get to answer with the value before", func() bool {
		before := three().Leader("KV_fact5")
		revision, err := kv.Put(within(t, limit), "k", nil)
		if err != nil {
			t.Fatal(err)
		}
		e, err := kv.Get(within(t, limit), "k")
		if err != nil && !errors.Is(err, jetstream.ErrKeyNotFound) {
			t.Fatal(err)
		}
		stale := err != nil || e.Revision() < revision
		if got := atLeader(t, js, "KV_fact5", "$KV.fact5.k"); got < revision && before == three().Leader("KV_fact5") {
			t.Fatalf("the leader answered with revision %d right after %d", got, revision)
		}
		return stale
	})
}

// atLeader returns the last revision of a subject at the stream's leader. The client library would ask
// any replica.
func atLeader(t *testing.T, js jetstream.JetStream, stream, subject string) uint64 {
	t.Helper()
	m, err := js.Conn().Request("$JS.API.STREAM.MSG.GET."+stream, fmt.Appendf(nil, `{"last_by_subj":%q}`, subject), limit)
	if err != nil {
		t.Fatal(err)
	}
	var answer server.JSApiMsgGetResponse
	if err := json.Unmarshal(m.Data, &answer); err != nil || answer.Message == nil {
		t.Fatalf("the leader of %s: %s", stream, m.Data)
	}
	return answer.Message.Sequence
}

// TestOlderValueComesBackWhenTheNewestExpires is fact 13: in a bucket with a history, when the newest
// value expires, the value before it is the last one again, with its own, older revision.
//
// Decision: history is 1 everywhere, and a bucket with more is refused (internal/broker/layout), because
// revisions that go back would admit a write that is out of date. If the test fails, a history might be
// kept for people to read.
func TestOlderValueComesBackWhenTheNewestExpires(t *testing.T) {
	t.Parallel()
	js := natstest.Run(t).JetStream()
	kv := bucket(t, js, jetstream.KeyValueConfig{Bucket: "fact13", History: 2, LimitMarkerTTL: time.Second})
	older, err := kv.PutString(within(t, limit), "k", "older")
	if err != nil {
		t.Fatal(err)
	}
	newest, err := put(t, js, "$KV.fact13.k", "newest", "1s", jetstream.WithExpectLastSequencePerSubject(older))
	if err != nil {
		t.Fatal(err)
	}
	var e jetstream.KeyValueEntry
	natstest.Eventually(t, "the newest value to expire", func() bool {
		e, err = kv.Get(within(t, limit), "k")
		return err != nil || e.Revision() != newest.Sequence
	})
	if err != nil || string(e.Value()) != "older" || e.Revision() != older {
		t.Fatalf("then: %v, %v, want the older value at revision %d", e, err, older)
	}
}

// TestTimeToLiveIsAWholeNumberOfSeconds is fact 14: the server cuts fractions off, and refuses less than
// a second. In a bucket with a history, it silently raises a time to live that is shorter than that of the
// markers.
//
// Decision: leases are not keys with a time to live (internal/fleet/node), and the ages that we set are
// limits of whole buckets. If the test fails, nothing changes: the broker's clock would still judge keys
// that expire.
func TestTimeToLiveIsAWholeNumberOfSeconds(t *testing.T) {
	t.Parallel()
	js := natstest.Run(t).JetStream()
	t.Run("a fraction is cut off", func(t *testing.T) {
		bucket(t, js, jetstream.KeyValueConfig{Bucket: "cut", LimitMarkerTTL: time.Minute})
		s, err := js.Stream(within(t, limit), "KV_cut")
		if err != nil {
			t.Fatal(err)
		}
		// What was stored is compared with the marker that it left, in the server's
		// own time: a server that is late may need another try.
		tries := 0
		natstest.Eventually(t, "1.9 s to end after 1 s", func() bool {
			tries++
			subject := "$KV.cut." + strconv.Itoa(tries)
			if _, err := put(t, js, subject, "", "1.9s"); err != nil {
				t.Fatal(err)
			}
			last := func() *jetstream.RawStreamMsg {
				m, err := s.GetLastMsgForSubject(within(t, limit), subject)
				if err != nil {
					t.Fatal(err)
				}
				return m
			}
			stored, marker := last(), (*jetstream.RawStreamMsg)(nil)
			natstest.Eventually(t, "a marker", func() bool {
				marker = last()
				return marker.Header.Get(jetstream.MarkerReasonHeader) != ""
			})
			return marker.Time.Sub(stored.Time) < 1900*time.Millisecond
		})
	})
	t.Run("less than a second is refused", func(t *testing.T) {
		bucket(t, js, jetstream.KeyValueConfig{Bucket: "short", LimitMarkerTTL: time.Minute})
		if _, err := put(t, js, "$KV.short.k", "", "900ms"); code(err) != ttlInvalid {
			t.Errorf("a time to live of 900 ms: %v, want %d", err, ttlInvalid)
		}
	})
	t.Run("less than the markers live is raised", func(t *testing.T) {
		kv := bucket(t, js, jetstream.KeyValueConfig{Bucket: "raised", History: 2, LimitMarkerTTL: time.Minute})
		revision, err := kv.Create(within(t, limit), "k", nil, jetstream.KeyTTL(time.Second))
		if err != nil {
			t.Fatal(err)
		}
		s, err := js.Stream(within(t, limit), "KV_raised")
		if err != nil {
			t.Fatal(err)
		}
		m, err := s.GetMsg(within(t, limit), revision)
		if err != nil || m.Header.Get(jetstream.MsgTTLHeader) != "60" {
			t.Errorf("stored: %v, %v, want a time to live of 60 s", m, err)
		}
	})
}
