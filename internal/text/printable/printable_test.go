package printable

import (
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

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
		if got := Text(in); got != want {
			t.Errorf("Text(%q) = %q, want %q", in, got, want)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		s := rapid.OneOf(rapid.String(), rapid.Map(rapid.SliceOf(rapid.Byte()), func(b []byte) string { return string(b) })).Draw(t, "s")
		for _, r := range Line(s) {
			if !unicode.IsPrint(r) {
				t.Fatalf("%q leaves %q", s, r)
			}
		}
	})
}

func TestClipCutsLongTextAndStaysPrintable(t *testing.T) {
	t.Parallel()
	if got := Clip("x\x01\x01é", 5); got != `x\x01\x01...` {
		t.Errorf("a letter at the second cut: %q", got)
	}
	rapid.Check(t, func(t *rapid.T) {
		s := rapid.OneOf(rapid.String(), rapid.Map(rapid.SliceOf(rapid.Byte()), func(b []byte) string { return string(b) })).Draw(t, "s")
		most := rapid.IntRange(1, 50).Draw(t, "most")
		got := Clip(s, most)
		if len(got) > 2*most+len("...") {
			t.Fatalf("Clip(%q, %d) has %d bytes", s, most, len(got))
		}
		if !utf8.ValidString(got) {
			t.Fatalf("Clip(%q, %d) = %q, which is not UTF-8", s, most, got)
		}
		if strings.ContainsFunc(got, func(r rune) bool { return Hidden(r) || r == '\n' || r == '\t' }) {
			t.Fatalf("Clip(%q, %d) = %q, which a terminal would obey", s, most, got)
		}
		if short := Line(s); len(s) <= most && len(short) <= 2*most && got != short {
			t.Fatalf("Clip(%q, %d) = %q, want all of it", s, most, got)
		}
	})
}
