//go:build long && unix

package integration

import (
	"fmt"
	"strings"
	"testing"
)

// Two workers share the shards of a slot. One of them dies while it runs its share, and one shard fails at first.
// Only these shards have a second attempt. The slot succeeds when all of its shards have.
func TestShardsOfASlotAreSharedAndEachIsRetriedAlone(t *testing.T) {
	t.Parallel()
	s := newServedSite(t)
	instant := soon()
	file := s.jobs(`echo "start $CRONCE_SHARD of $CRONCE_SHARDS at $CRONCE_ATTEMPT by $CRONCE_NODE" >>touched
case "$CRONCE_SHARD-$CRONCE_ATTEMPT" in
3-1) exit 1 ;;
*-1) until [ -e go ]; do sleep 0.1; done ;;
esac
echo "end $CRONCE_SHARD" >>touched`,
		"name: split, shards: 6, retry: {attempts: 4, backoff: 100ms}, "+at(instant))
	dies := s.worker("w1", file, "--lease", lease.String(), "--concurrency", "3")
	dies.says("node is up")
	s.worker("w2", file, "--concurrency", "3").says("node is up")
	eventually(t, "all shards to run", func() bool { return strings.Count(strings.Join(s.touched(), ""), " of 6 at 1 by ") == 6 })
	dies.kill()
	begun := s.touched()
	s.write("go", "")
	id := slotID("split", instant)
	s.ends(id, "succeeded")
	rows := s.slots("--job", "split")
	byID := map[string]slotRow{}
	for _, row := range rows {
		byID[row.ID] = row
	}
	for i := 1; i <= 6; i++ {
		again := i == 3 || count(begun, fmt.Sprintf("start %d of 6 at 1 by w1-", i)) == 1
		if r := byID[fmt.Sprintf("%s#%dof6", id, i)]; r.State != "succeeded" || again != (r.Attempt > 1) {
			t.Errorf("shard %d is %s at attempt %d; want a second attempt: %v", i, r.State, r.Attempt, again)
		}
		if count(s.touched(), fmt.Sprintf("end %d", i)) == 0 {
			t.Errorf("shard %d did not run to its end", i)
		}
	}
	if len(rows) != 7 {
		t.Errorf("slot ls shows %d rows, want the slot and its six shards: %+v", len(rows), rows)
	}
}
