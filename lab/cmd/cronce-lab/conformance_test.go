//go:build unix

package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/cronce-io/cronce/cmd/cronce/base"
	"github.com/cronce-io/cronce/docs/protocol"
)

// answering is a command that answers each question with these members.
func answering(members string) string { return `sed -E 's/,"about".*/,` + members + `}/'` }

// definitions returns how many cases the vectors of definitions have.
func definitions(t *testing.T) int {
	t.Helper()
	data, err := protocol.Files.ReadFile("definitions.json")
	if err != nil {
		t.Fatal(err)
	}
	var cases []json.RawMessage
	if err := json.Unmarshal(data, &cases); err != nil {
		t.Fatal(err)
	}
	return len(cases)
}

// A command that cannot be judged ends with status 1, and an error that says what is wrong.
func TestConformanceSaysWhatIsWrongWithACommand(t *testing.T) {
	t.Parallel()
	n := definitions(t)
	for _, c := range []struct{ name, command, want string }{
		{"missing", "no-such-client --fast", "no-such-client"},
		{"ends at once", "exit 7", "exit status 7"},
		{"says why it ended", "echo 'cannot find its library' >&2; exit 1", "cannot find its library"},
		{"garbage", "echo hello; cat >/dev/null", `not JSON`},
		{"garbage after an assignment", "WORD=hello printenv WORD", `: "hello"`},
		{"two values on a line", `head -1 | ` + answering(`"answer":{}`) + ` | sed 's/$/ {}/'`, "not JSON"},
		{"no answer in it", "cat", `no "answer" and no "leave"`},
		{"answers nothing", "cat >/dev/null", fmt.Sprintf("ended with %d of %d cases not answered, the first of them definitions/0", n, n)},
		{"answers in part", "head -2 | " + answering(`"answer":{}`), fmt.Sprintf("ended with %d of %d cases not answered, the first of them definitions/2", n-2, n)},
		{"hangs", "cat >/dev/null; sleep 1000", fmt.Sprintf("none for 1s, and %d of %d cases are not answered", n, n)},
		{"runs on", answering(`"answer":{}`) + "; sleep 1000", "it has answered all cases, and still runs"},
		{"answers twice", answering(`"answer":{}`) + " | sed p", `case "definitions/0" is answered twice`},
		{"answers what was not asked", `sed -E 's/.*/{"case":"names\/0","answer":{}}/'`, `case "names/0" was not asked`},
		{"leaves out what it may not", answering(`"answer":{},"without":["hash"]`), `without "hash"`},
		{"a line without an end", "head -c 6000000 /dev/zero | tr '\\0' x", "a line of more than 4 MiB"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			// Two commands never end. The others may be slow on a busy machine.
			timeout := map[string]string{"hangs": "1s", "runs on": "5s"}[c.name]
			r := cli{}.run(t, "conformance", "vectors", "--only", "definitions", "--timeout", cmp.Or(timeout, "30s"), "--cmd", c.command)
			if r.code != base.ExitFailed || !strings.Contains(r.stderr+r.stdout, c.want) {
				t.Errorf("status %d, stderr %q, stdout %q: want status 1 and %q", r.code, r.stderr, r.stdout, c.want)
			}
		})
	}
}

// A client that answers wrongly fails, and the report names the MUST.
func TestConformanceNamesTheMustThatFailed(t *testing.T) {
	t.Parallel()
	n := definitions(t)
	r := cli{}.run(t, "conformance", "vectors", "--only", "definitions", "--cmd", answering(`"answer":{"hash":"0123456789abcdef"}`), "-o", "json")
	if r.code != base.ExitFound || !strings.Contains(r.stderr, fmt.Sprintf("%d of %d cases failed", n, n)) {
		t.Errorf("status %d, stderr %q: want status 3 and what failed", r.code, r.stderr)
	}
	lines := strings.Split(strings.TrimSpace(r.stdout), "\n")
	var failed, must, sum map[string]any
	for line, into := range map[int]*map[string]any{0: &failed, len(lines) - 2: &must, len(lines) - 1: &sum} {
		if err := json.Unmarshal([]byte(lines[line]), into); err != nil {
			t.Fatal(err)
		}
	}
	if failed["case"] != "definitions/0" || !strings.Contains(failed["wrong"].(string), "canonical is missing") {
		t.Errorf("the first failure is %v", failed)
	}
	if must["must"] != "R-2" || must["failed"] != float64(n) {
		t.Errorf("the MUST is %v, want R-2 with %d failures", must, n)
	}
	if sum["ok"] != false || sum["cases"] != float64(n) {
		t.Errorf("the sum is %v", sum)
	}
}

func TestConformanceEndsWithStatusThreeIfItFindsSomething(t *testing.T) {
	t.Parallel()
	for answer, want := range map[string]string{
		`"answer":{"cannonical":"x"}`: `"cannonical" is no member of this answer`,
		`"leave":"later"`:             "nothing was checked",
	} {
		r := cli{}.run(t, "conformance", "vectors", "--only", "definitions", "--cmd", answering(answer))
		if r.code != base.ExitFound || !strings.Contains(r.stderr+r.stdout, want) {
			t.Errorf("%s: status %d, stderr %q, stdout %q: want status 3 and %q", answer, r.code, r.stderr, r.stdout, want)
		}
	}
}

func TestConformanceRefusesWrongFlags(t *testing.T) {
	t.Parallel()
	for want, args := range map[string][]string{
		"no --cmd":              {},
		`invalid --only "name"`: {"--cmd", "cat", "--only", "name"},
		"invalid --timeout":     {"--cmd", "cat", "--timeout", "1ms"},
	} {
		r := cli{}.run(t, append([]string{"conformance", "vectors"}, args...)...)
		if r.code != base.ExitUsage || !strings.Contains(r.stderr, want) {
			t.Errorf("%v: status %d, stderr %q: want status 2 and %q", args, r.code, r.stderr, want)
		}
	}
}

func TestThePeersSummaryCountsEachSelectedScenarioOnce(t *testing.T) {
	t.Parallel()
	r := cli{}.run(t, "conformance", "peer", "--only", "guarded", "--leave", "guarded,guarded,follows", "--cmd", "false")
	if want := "1 scenario: 0 passed, 0 failed, 1 left to others\n"; r.code != base.ExitFound || r.stdout != want {
		t.Errorf("status %d, stdout %q, stderr %q: want status 3 and %q", r.code, r.stdout, r.stderr, want)
	}
}
