//go:build unix

package main

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/cronce-io/cronce/cmd/cronce/base"
)

// answering is a command that answers each question with these members.
func answering(members string) string { return `sed -E 's/,"about".*/,` + members + `}/'` }

// A command that cannot be judged ends with status 1, and an error that says what is wrong.
func TestConformanceSaysWhatIsWrongWithACommand(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, command, want string }{
		{"missing", "no-such-client --fast", "no-such-client"},
		{"ends at once", "exit 7", "exit status 7"},
		{"says why it ended", "echo 'cannot find its library' >&2; exit 1", "cannot find its library"},
		{"garbage", "echo hello; cat >/dev/null", `not JSON`},
		{"two values on a line", `head -1 | ` + answering(`"answer":{}`) + ` | sed 's/$/ {}/'`, "not JSON"},
		{"no answer in it", "cat", `no "answer" and no "leave"`},
		{"answers nothing", "cat >/dev/null", "ended with 5 of 5 cases not answered, the first of them definitions/0"},
		{"answers in part", "head -2 | " + answering(`"answer":{}`), "ended with 3 of 5 cases not answered, the first of them definitions/2"},
		{"hangs", "cat >/dev/null; sleep 1000", "none for 1s, and 5 of 5 cases are not answered"},
		{"runs on", answering(`"answer":{}`) + "; sleep 1000", "answered everything and runs on"},
		{"answers twice", answering(`"answer":{}`) + " | sed p", `case "definitions/0" is answered twice`},
		{"answers what was not asked", `sed -E 's/.*/{"case":"names\/0","answer":{}}/'`, `case "names/0" was not asked`},
		{"leaves out what it may not", answering(`"answer":{},"without":["hash"]`), `without "hash"`},
		{"a line without an end", "head -c 6000000 /dev/zero | tr '\\0' x", "a line of more than 4 MiB"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			r := cli{}.run(t, "conformance", "vectors", "--only", "definitions", "--timeout", "1s", "--cmd", c.command)
			if r.code != base.ExitFailed || !strings.Contains(r.stderr+r.stdout, c.want) {
				t.Errorf("status %d, stderr %q, stdout %q: want status 1 and %q", r.code, r.stderr, r.stdout, c.want)
			}
		})
	}
}

// A client that answers wrongly fails, and the report names the MUST.
func TestConformanceNamesTheMustThatFailed(t *testing.T) {
	t.Parallel()
	r := cli{}.run(t, "conformance", "vectors", "--only", "definitions", "--cmd", answering(`"answer":{"hash":"0123456789abcdef"}`), "-o", "json")
	if r.code != base.ExitFound || !strings.Contains(r.stderr, "5 of 5 cases failed") {
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
	if must["must"] != "R-2" || must["failed"] != 5.0 {
		t.Errorf("the MUST is %v, want R-2 with 5 failures", must)
	}
	if sum["ok"] != false || sum["cases"] != 5.0 {
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
