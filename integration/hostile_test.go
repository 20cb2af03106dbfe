//go:build long && unix

package integration

import (
	"fmt"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// hostile are strings that would move a cursor, forge a line, end a quote, or reach
// other subjects and files.
var hostile = []string{
	"\x1b[2J\x1b]0;owned\x07", "a\r\n12:00:00.000 INF slot succeeded slot=forged", "\x00", "cronce.>", "*", `"},{"x":"`, "../../etc/passwd", "\u202egnp.exe",
	"$(touch owned)", "; touch owned", strings.Repeat("x", 900_000),
}

// Others write into the streams and buckets by hand. That harms no node: what is wrong is reported or left
// out, everything else goes on, and no terminal obeys it.
func TestHostileValuesHarmNoNode(t *testing.T) {
	t.Parallel()
	s := newServedSite(t)
	file := s.jobs("cat > payload.$CRONCE_ATTEMPT; echo $CRONCE_SLOT_ID >> touched", `name: tick, schedule: "* * * * * *", overlap: queue`, `name: manual, schedule: "0 0 1 1 *"`)
	node := s.worker("w", file)
	eventually(t, "slots to run", func() bool { return len(s.touched()) > 0 })
	jobs, ledger, nodes := s.bucket("jobs"), s.bucket("ledger"), s.bucket("nodes")
	put := func(m *nats.Msg) {
		t.Helper()
		if _, err := s.js.PublishMsg(t.Context(), m); err != nil {
			t.Fatal(err)
		}
	}
	for i, text := range hostile {
		header := func(id string) nats.Header {
			// The client alters line ends in headers by itself.
			clean := func(v string) string { return strings.NewReplacer("\r", "", "\n", "").Replace(v[:min(len(v), 20_000)]) }
			return nats.Header{"Nats-Msg-Id": {clean(id)}, "Cronce-Node": {clean(text)}, "Traceparent": {clean(text)}}
		}
		put(&nats.Msg{Subject: "cronce.slot.default.manual", Header: header("manual:@" + text), Data: []byte(text)})
		put(&nats.Msg{Subject: "cronce.slot.default.manual", Header: header(fmt.Sprintf("manual:@hand%d", i)), Data: []byte(text)})
		put(&nats.Msg{Subject: "cronce.slot.default.manual", Header: header(text), Data: []byte(text)})
		quoted := fmt.Sprintf("%q", text) // Go's escapes are not all JSON's: some values are no JSON at all
		for _, value := range []string{text, `{"v":1,"job":{"name":` + quoted + `}}`, `{"v":99,"node":` + quoted + `,"error":` + quoted + `}`} {
			if len(value) > 1_000_000 {
				continue
			}
			for key, bucket := range map[string]jetstream.KeyValue{
				fmt.Sprintf("job%d", i): jobs, fmt.Sprintf("evil%d.20261121T070000Z", i): ledger, fmt.Sprintf("node%d", i): nodes,
			} {
				if _, err := bucket.PutString(t.Context(), key, value); err != nil {
					t.Fatal(err)
				}
			}
		}
		if len(text) < 100_000 {
			if err := s.nc.Publish("cronce.node.x.cancel", []byte(text)); err != nil {
				t.Fatal(err)
			}
		}
	}
	before := len(s.touched())
	eventually(t, "further slots to run", func() bool { return len(s.touched()) > before+2 })
	eventually(t, "the run with the large payload to be cancelled, and the others to run", func() bool {
		state := map[string]string{}
		for _, row := range s.slots("--job", "manual") {
			state[row.ID] = row.State
		}
		return state["manual:@hand10"] == "cancelled" && state["manual:@hand0"] == "succeeded" && state["manual:@hand9"] == "succeeded"
	})
	for _, args := range [][]string{{"job", "ls"}, {"slot", "ls"}, {"node", "ls"}, {"slot", "show", "manual:@hand1"}, {"slot", "explain", "manual:@hand0"}, {"job", "show", "job0"}} {
		for _, format := range []string{"text", "json"} {
			p := s.start(strings.Join(args, " "), append(args, "-o", format)...)
			if code := p.exit(); code != 0 {
				t.Errorf("cronce %v: %d: %.300s", args, code, p.stderr())
			}
			tame(t, p)
		}
	}
	for _, text := range hostile {
		if len(text) > 100_000 || strings.Contains(text, "\x00") {
			continue // no argument of a program can be so
		}
		for _, args := range [][]string{
			{"job", "show", text}, {"job", "trigger", text}, {"job", "trigger", "manual", "--payload", text}, {"slot", "show", text},
			{"slot", "cancel", "manual:@" + text}, {"next", "* * * * *", "--tz", text}, {"next", text}, {"job", "ls", "--namespace", text}, {"run", "-f", file, "--node", text},
			{"slot", "ls", "--job", text}, {"job", "ls", "--inbox-prefix", text},
		} {
			p := s.start("hostile flag", args...)
			if code := p.exit(); code != 1 && code != 2 {
				t.Errorf("cronce %q: %d: %s", args, code, p.stdout())
			}
			tame(t, p)
		}
	}
	term(node)
	tame(t, node)
	if len(s.lines("owned")) > 0 {
		t.Error("a command was carried out")
	}
}

// tame fails the test if a terminal would obey something that a process has written, or if it has a forged
// line.
func tame(t *testing.T, p *process) {
	t.Helper()
	for stream, text := range map[string]string{"stdout": p.stdout(), "stderr": p.stderr()} {
		if i := strings.IndexAny(text, "\x1b\x00\x07\r\u202e"); i >= 0 {
			t.Errorf("%s writes %q to its %s", p.name, text[max(0, i-60):min(len(text), i+40)], stream)
		}
		for line := range strings.Lines(text) {
			if strings.HasPrefix(line, "12:00:00.000") {
				t.Errorf("%s writes a forged line to its %s", p.name, stream)
			}
			if len(line) > 20_000 {
				t.Errorf("%s writes a line of %d bytes to its %s: %.100q", p.name, len(line), stream, line)
			}
		}
	}
}
