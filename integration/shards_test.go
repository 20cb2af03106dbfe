//go:build long && unix

package integration

import (
	"fmt"
	"testing"
	"time"
)

// Two workers share the shards of a slot; one of them dies in the middle of its
// share, and one shard needs a second attempt. The slot succeeds when all have.
func TestShardsOfASlotAreSharedAndEachIsRetriedAlone(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.startServer("127.0.0.1:0")
	s.connect()
	instant := soon().UTC()
	file := s.jobs(`echo "start $CRONCE_SHARD of $CRONCE_SHARDS at $CRONCE_ATTEMPT by $CRONCE_NODE" >>touched
case "$CRONCE_SHARD-$CRONCE_ATTEMPT" in
3-1) exit 1 ;;
*-1) sleep 2 ;;
esac
echo "end $CRONCE_SHARD" >>touched`,
		fmt.Sprintf("name: split, shards: 6, schedule: '@at %s', retry: {attempts: 4, backoff: 100ms}", instant.Format(time.RFC3339)))
	dies := s.worker("w1", file, "--lease", lease.String(), "--concurrency", "3")
	s.worker("w2", file, "--lease", lease.String(), "--concurrency", "3")
	eventually(t, "both to run shards", func() bool {
		return count(s.touched(), "start") >= 6
	})
	dies.kill()
	id := slotID("split", instant)
	s.ends(id, "succeeded")
	rows := s.slots("--job", "split")
	byID := map[string]slotRow{}
	for _, row := range rows {
		byID[row.ID] = row
	}
	for i := 1; i <= 6; i++ {
		if r := byID[fmt.Sprintf("%s#%dof6", id, i)]; r.State != "succeeded" || i == 3 && r.Attempt < 2 {
			t.Errorf("shard %d is %s at attempt %d", i, r.State, r.Attempt)
		}
		if count(s.touched(), fmt.Sprintf("end %d", i)) == 0 {
			t.Errorf("shard %d has not run to its end", i)
		}
	}
	if len(rows) != 7 {
		t.Errorf("slot ls shows %d rows, want the slot and its six shards: %+v", len(rows), rows)
	}
}
