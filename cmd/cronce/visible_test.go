package main

import (
	"os/exec"
	"strings"
	"testing"
	"unicode"

	"pgregory.net/rapid"
)

func TestWhatATerminalWouldObeyIsShown(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"plain, Grüße, 世界\n\tdone": "plain, Grüße, 世界\n\tdone",
		"\x1b[31mred\x1b[0m":       `\x1b[31mred\x1b[0m`,
		"\x1b]0;title\a":           `\x1b]0;title\a`,
		"over\rwritten\b\x7f":      `over\rwritten\b\x7f`,
		"\u009b2J\u0085":           `\u009b2J\u0085`,
		"\u202egpj.exe\u2066":      `\u202egpj.exe\u2066`,
		"not \xff\xfe UTF-8 \x0a":  "not \\xff\\xfe UTF-8 \n",
		"a \uFFFD that was there":  "a \uFFFD that was there",
		"no\u00a0break\u200b":      `no\u00a0break\u200b`,
	} {
		if got := visible(in); got != want {
			t.Errorf("visible(%q) = %q, want %q", in, got, want)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		s := rapid.OneOf(rapid.String(), rapid.Map(rapid.SliceOf(rapid.Byte()), func(b []byte) string { return string(b) })).Draw(t, "s")
		for _, r := range plain(s) {
			if !unicode.IsPrint(r) {
				t.Fatalf("%q leaves %q", s, r)
			}
		}
	})
}

func TestQuotedIDsAreWhatAShellTakes(t *testing.T) {
	t.Parallel()
	for _, id := range []string{"report:2026-11-21T07:00:00Z", "report:@it's", `report:@a\'b`, "report:@\u202egnp.exe", "report:@\u200b'\\n", "report:@$(touch x)"} {
		cmd := exec.Command("bash", "-c", "printf %s "+quoted(id))
		cmd.Env = []string{"LC_ALL=C.UTF-8"}
		out, err := cmd.Output()
		if err != nil || string(out) != id {
			t.Errorf("%q is quoted as %s, which is %q, %v", id, quoted(id), out, err)
		}
		if strings.ContainsFunc(quoted(id), hidden) {
			t.Errorf("%q is quoted with what a terminal obeys", id)
		}
	}
}
