package jobfile

import (
	"errors"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/cronce-io/cronce/internal/jobfile/spec"
)

const wholeFile = "version: 1\njobs:\n  - {name: a, schedule: none, action: {exec: [/bin/true]}}\n"

// emptyParts are what may stand before and behind the document of a job file.
var emptyParts = []string{
	"---\n", "--- \n", "--- # Source: a.yaml\n", "---\n# Source: a.yaml\n", "# a comment\n", "\n", "  \n", "...\n", "---\n...\n", "---\n---\n",
}

func TestWhatFollowsAJobFileIsRefusedWithItsLine(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		parts := rapid.SliceOfN(rapid.SampledFrom(emptyParts), 0, 4)
		text := strings.Join(parts.Draw(t, "before"), "") + "---\n" + wholeFile + strings.Join(parts.Draw(t, "between"), "")
		if f, err := Parse("f", []byte(text)); err != nil || len(f.Jobs) != 1 {
			t.Fatalf("%v for\n%s", err, text)
		}
		from := strings.Count(text, "\n") + 1
		text += "---\n" + rapid.SampledFrom([]string{wholeFile, "a: b\n", "- a\n", "text\n", "7\n", "jobs: []\n", "a: [\n", "\"\n", "null\n"}).Draw(t, "more")
		text += strings.Join(parts.Draw(t, "after"), "")
		_, err := Parse("f", []byte(text))
		errs, named := errors.AsType[spec.Errors](err)
		if !named || errs[len(errs)-1].Line < from {
			t.Fatalf("%v, want an error about line %d or later of\n%s", err, from, text)
		}
	})
}

func TestWhatFollowsAJobFileAsJSONIsRefused(t *testing.T) {
	t.Parallel()
	const whole = `{"version": 1, "jobs": [{"name": "a", "schedule": "none"}]}`
	for _, more := range []string{"{}", "null", "x", "]", ",", `"`, whole, "\x00"} {
		for _, between := range []string{"", "\n", " \t\r\n"} {
			if _, err := spec.ParseJSON("f", []byte(whole+between+more), spec.WithoutActions()); err == nil {
				t.Errorf("%q is read although %q follows", whole, between+more)
			}
		}
	}
}
