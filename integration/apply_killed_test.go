//go:build long && unix

package integration

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// An apply of 2,000 jobs is killed in the middle. Each job then has its old or its new definition, and the
// same command again applies the rest.
func TestApplyThatIsKilledIsFinishedByTheNext(t *testing.T) {
	t.Parallel()
	const many = 2000
	s := newServedSite(t)
	s.command(0, "setup")
	schedule := func(version int) string { return fmt.Sprintf("%d 7 * * *", version) }
	file := func(version int) string {
		jobs := make([]string, many)
		for i := range jobs {
			jobs[i] = fmt.Sprintf(`name: j%04d, schedule: %q`, i, schedule(version))
		}
		return s.jobFile("many.yaml", jobs...)
	}
	written := func() uint64 {
		stream, err := s.js.Stream(t.Context(), "KV_cronce_jobs")
		if err != nil {
			t.Fatal(err)
		}
		return stream.CachedInfo().State.LastSeq
	}
	interrupted := false
	for version := range 10 {
		path, before := file(version), written()
		p := s.start("apply", "job", "apply", "-f", path)
		eventually(t, "the apply to be under way", func() bool { return written() > before+uint64(version)*700 || !p.running() })
		p.kill()
		counts := map[string]int{}
		for _, row := range list[struct{ Job, Schedule string }](s, "job", "ls") {
			counts[row.Schedule]++
		}
		fresh := counts[schedule(version)]
		if old := counts[schedule(version-1)]; version > 0 && fresh+old != many || len(counts) > 2 {
			t.Fatalf("after the kill: %v, want old and new ones, %d in all", counts, many)
		}
		start := time.Now()
		s.command(0, "job", "apply", "-f", path)
		if rows := list[struct{ Job, Schedule string }](s, "job", "ls"); len(rows) != many || rows[0].Schedule != schedule(version) || rows[many-1].Schedule != schedule(version) {
			t.Fatalf("after the same again: %d jobs", len(rows))
		}
		t.Logf("killed after %d of %d; the rest in %v", fresh, many, time.Since(start))
		if interrupted = fresh > 0 && fresh < many; interrupted && version > 0 {
			break
		}
	}
	if !interrupted {
		t.Error("no apply was killed in the middle")
	}
	if p := s.command(0, "job", "apply", "-f", s.path("many.yaml")); !strings.Contains(p.stdout(), "2000 unchanged") {
		t.Errorf("once more prints %s", p.stdout())
	}
}
