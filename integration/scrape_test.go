//go:build unix

package integration

import (
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cronce-io/cronce/internal/lab/natstest"
)

// newMeasuredSite is a site whose workers serve their metrics.
func newMeasuredSite(t *testing.T) *site {
	t.Helper()
	s := newServedSite(t)
	s.workerArgs = []string{"--metrics-addr", "127.0.0.1:0"}
	return s
}

var served = regexp.MustCompile(`metrics=(http://\S+)/metrics`)

// ask gets a page of the server for metrics and health of a process.
func (p *process) ask(page string) (status int, body string) {
	p.t.Helper()
	p.says("serving metrics and health")
	resp, err := http.Get(served.FindStringSubmatch(p.stderr())[1] + page)
	if err != nil {
		p.t.Fatal(err)
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		p.t.Fatal(err)
	}
	return resp.StatusCode, string(data)
}

// metrics scrapes a process. It returns the value of each series, by the text of the series.
func (p *process) metrics() map[string]float64 {
	p.t.Helper()
	status, body := p.ask("/metrics")
	if status != http.StatusOK {
		p.t.Fatalf("status %d: %s", status, body)
	}
	values := map[string]float64{}
	for line := range strings.Lines(body) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), " "); ok && !strings.HasPrefix(line, "#") {
			if i := strings.LastIndex(line, "} "); i >= 0 { // labels may have spaces
				name, value = line[:i+1], strings.TrimSpace(line[i+2:])
			}
			v, err := strconv.ParseFloat(value, 64)
			if err != nil {
				p.t.Fatalf("%q: %v", line, err)
			}
			values[name] = v
		}
	}
	return values
}

// measured waits until the series of a process have these values. A series that is absent counts as 0. It
// polls, because a worker counts an outcome only after it has recorded it.
func (p *process) measured(want map[string]float64) {
	p.t.Helper()
	var wrong []string
	deadline, tick := time.Now().Add(natstest.Patience), time.Tick(20*time.Millisecond)
	for again := true; again; again = len(wrong) > 0 && (<-tick).Before(deadline) {
		got := p.metrics()
		wrong = nil
		for name, value := range want {
			if got[name] != value {
				wrong = append(wrong, fmt.Sprintf("%s: %s is %v, want %v", p.name, name, got[name], value))
			}
		}
	}
	for _, w := range wrong {
		p.t.Error(w)
	}
}
