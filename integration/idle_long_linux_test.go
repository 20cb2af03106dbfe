//go:build long

package integration

import (
	"encoding/json"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/cronce-io/cronce/internal/lab/natstest"
)

// traffic counts the messages that a server has received and sent.
type traffic struct {
	In  int64 `json:"in_msgs"`
	Out int64 `json:"out_msgs"`
}

func countsAt(t *testing.T, url string) (c traffic) {
	t.Helper()
	resp, err := http.Get(url + "/varz")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if err := json.NewDecoder(resp.Body).Decode(&c); err != nil {
		t.Fatal(err)
	}
	return c
}

// What heartbeats, announcements and requests for work cost grows with the nodes, and
// not with their square.
func TestIdleFleetCostsTheBrokerLittle(t *testing.T) {
	for _, test := range []struct {
		nodes   int
		in, out int64 // at most, a second
		settle  time.Duration
	}{{10, 30, 300, 15 * time.Second}, {100, 300, 3000, 30 * time.Second}} {
		t.Run(fmt.Sprint(test.nodes), func(t *testing.T) {
			s, ports := newSite(t), natstest.FreePorts(t, 2)
			s.server = start(t, "nats-server", s.env(), nil, program(t, natsServer), "-js", "-sd", s.path("store"),
				"-a", "127.0.0.1", "-p", fmt.Sprint(ports[0]), "-m", fmt.Sprint(ports[1]))
			s.server.says("Server is ready")
			s.url = fmt.Sprintf("nats://127.0.0.1:%d", ports[0])
			monitor := fmt.Sprintf("http://127.0.0.1:%d", ports[1])
			file := s.jobFile("jobs.yaml", "name: mine, schedule: 0 0 1 1 *")
			for i := range test.nodes {
				p := s.start(fmt.Sprint("n", i), "run", "-f", file, "--node", fmt.Sprint("n", i))
				if i%10 == 9 {
					p.says("node is up")
				}
			}
			<-time.After(test.settle)
			const seconds = 20
			before := countsAt(t, monitor)
			<-time.After(seconds * time.Second)
			after := countsAt(t, monitor)
			in, out := (after.In-before.In)/seconds, (after.Out-before.Out)/seconds
			t.Logf("%d nodes: %d messages a second in, %d out", test.nodes, in, out)
			if in >= test.in || out >= test.out {
				t.Errorf("%d in and %d out a second, want under %d and %d", in, out, test.in, test.out)
			}
		})
	}
}

func TestEmbeddedServerIsSmall(t *testing.T) {
	s := newServedSite(t)
	<-time.After(time.Minute)
	resident := s.server.usage().resident >> 20
	t.Logf("%d MB resident after a minute", resident)
	if resident >= 60 {
		t.Errorf("%d MB resident, want under 60", resident)
	}
}
