//go:build long

package integration

import (
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/cronce-io/cronce/internal/core/plans"
	"github.com/cronce-io/cronce/internal/lab/filetest"
	"github.com/cronce-io/cronce/internal/lab/natstest"
	"github.com/cronce-io/cronce/job"
)

// manyJobs is the number of jobs in the registry. CRONCE_JOBS sets it, as "task million" does.
func manyJobs(t *testing.T) int {
	text := os.Getenv("CRONCE_JOBS")
	if text == "" {
		return 20_000
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// enterMany writes n jobs into the registry, with a thousand different expressions. The names have 24 bytes,
// and the payloads 100. None is due before the first of January.
func enterMany(t *testing.T, js jetstream.JetStream, n int) {
	t.Helper()
	payload := json.RawMessage(`"` + strings.Repeat("x", 98) + `"`)
	for i := range n {
		d := plans.Definition{Owner: plans.OwnerCode, Node: "elsewhere-1-1763700000-abcdefgh", Nonce: strconv.Itoa(i), Job: job.Job{
			Name: fmt.Sprintf("customer-report-%08d", i), Schedule: fmt.Sprintf("%d %d 1 1 *", i%50, i/50%20), Payload: payload,
		}.WithDefaults()}
		data, err := json.Marshal(d)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := js.PublishMsgAsync(&nats.Msg{Subject: "$KV.cronce_jobs." + d.Job.Name, Data: data}, jetstream.WithStallWait(time.Minute)); err != nil {
			t.Fatal(err)
		}
	}
	select {
	case <-js.PublishAsyncComplete():
	case <-time.After(natstest.Patience):
		t.Fatal("the registry was not written")
	}
}

// usage is the memory and the CPU time of a process.
type usage struct {
	resident, peak int64 // bytes
	cpu            time.Duration
}

func (p *process) usage() (u usage) {
	p.t.Helper()
	read := func(name string) string {
		return string(filetest.Read(p.t, fmt.Sprintf("/proc/%d/%s", p.cmd.Process.Pid, name)))
	}
	for line := range strings.Lines(read("status")) {
		var kb int64
		if n, _ := fmt.Sscanf(line, "VmRSS: %d kB", &kb); n == 1 {
			u.resident = kb << 10
		}
		if n, _ := fmt.Sscanf(line, "VmHWM: %d kB", &kb); n == 1 {
			u.peak = kb << 10
		}
	}
	_, stat, _ := strings.Cut(read("stat"), ") ")
	fields := strings.Fields(stat)
	for _, ticks := range fields[11:13] { // user and system, in hundredths of a second
		n, err := strconv.ParseInt(ticks, 10, 64)
		if err != nil {
			p.t.Fatal(err)
		}
		u.cpu += time.Duration(n) * 10 * time.Millisecond
	}
	return u
}

// The limit is on the memory of each job. From outside, the watermark shows up to which revision a producer
// has read the registry.
func TestRegistryOfManyJobsIsSmall(t *testing.T) {
	n := manyJobs(t)
	for _, role := range []string{"producer", "producer and worker"} {
		s := newForeignSite(t)
		args := []string{"run", "--node", "small"}
		if role != "producer" {
			args = append(args, "-f", s.jobFile("jobs.yaml", "name: mine, schedule: 0 0 1 1 *"))
		}
		empty := s.start("empty", args...)
		empty.says("node is up")
		s.watermarkAt(0)
		before := empty.usage()
		term(empty)

		js := natstest.JetStream(t, natstest.Connect(t, s.url))
		began := time.Now()
		enterMany(t, js, n)
		t.Logf("%s: entered %d jobs in %v", role, n, time.Since(began).Round(time.Millisecond))
		stream, err := js.Stream(t.Context(), "KV_cronce_jobs")
		if err != nil {
			t.Fatal(err)
		}
		p := s.start("full", args...)
		s.watermarkAt(stream.CachedInfo().State.LastSeq)
		loaded := time.Since(p.started)
		at := p.usage()
		eventually(t, "a quiet process", func() bool {
			a := p.usage().cpu
			<-time.After(time.Second)
			return p.usage().cpu-a <= 50*time.Millisecond
		})
		settled := p.usage()
		const while = 5 * time.Second
		<-time.After(while)
		idle := p.usage().cpu - settled.cpu
		each := (settled.resident - before.resident) / int64(n)
		t.Logf("%s: %d jobs loaded in %v with %v of CPU, resident %d MB then (peak %d), %d MB settled, %d empty: %d bytes a job; idle %.2f %% of a core",
			role, n, loaded.Round(time.Millisecond), at.cpu, at.resident>>20, at.peak>>20, settled.resident>>20, before.resident>>20, each,
			100*idle.Seconds()/while.Seconds())
		// With few jobs, the variation of the process itself is a large part, so the limit is higher. With the
		// race detector a program takes several times as much memory, which says nothing.
		if limit := int64(500 + 30_000_000/n); each > limit && !raceDetector {
			t.Errorf("%s: %d bytes a job, want at most %d", role, each, limit)
		}
	}
}
