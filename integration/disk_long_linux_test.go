//go:build long

package integration

import (
	"testing"
	"time"
)

// The disk of the server that leads is full, those of the other two are not: the
// fleet goes on, before and after there is room again and it is restarted.
func TestFullDiskOfTheLeader(t *testing.T) {
	t.Parallel()
	c := newClusterSite(t)
	file, jobs := c.burst(tick, 5)
	var workers []*process
	for _, name := range []string{"w1", "w2", "w3"} {
		workers = append(workers, c.worker(name, file))
	}
	c.rounds(jobs[4], 1)
	for _, stream := range []string{"cronce_slots", "KV_cronce_ledger"} {
		c.current()
		leader := c.leader(stream)
		mend := leader.process.fillDisk()
		began := time.Now()
		c.rounds(jobs[4], 4)
		t.Logf("the disk of %s, the leader of %s, is full: four rounds in %v", leader.name, stream, time.Since(began))
		mend()
		c.restart(leader, (*process).kill, func() {})
		c.rounds(jobs[4], 2)
	}
	c.finish(workers, jobs...)
	for _, job := range jobs {
		c.checkSucceeded(job, 3*time.Second)
	}
}
