package output

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"

	"github.com/cronce-io/cronce/internal/codec"
	"github.com/cronce-io/cronce/job"
)

// texts draws output without a mark of its own.
func texts(limit int) *rapid.Generator[string] {
	word := rapid.SampledFrom([]string{"a", "\n", "é", "世", "🙂", "\x1b[2J", "\xff", "line of text\n", "\"", "\x00", "\u2028", "\t", "\x7f", "<"})
	return rapid.Map(rapid.SliceOfN(word, 0, limit), func(words []string) string { return strings.Join(words, "") })
}

// apart splits a text at its mark.
func apart(s string) (head, tail string, cut int64, ok bool) {
	at := outputMarks.FindStringSubmatchIndex(s)
	if at == nil {
		return s, "", 0, false
	}
	_, err := fmt.Sscan(s[at[2]:at[3]], &cut)
	return s[:at[0]], s[at[1]:], cut, err == nil
}

func TestOutputKeepsTheBeginningAndTheEnd(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		o := Buffer{Limit: rapid.IntRange(0, 40).Draw(t, "limit")}
		var all bytes.Buffer
		for _, p := range rapid.SliceOfN(texts(20), 0, 20).Draw(t, "writes") {
			all.WriteString(p)
			o.Write([]byte(p))
		}
		got, whole := o.String(), all.String()
		switch head, tail, cut, marked := apart(got); {
		case o.Written() != int64(len(whole)):
			t.Fatalf("%d bytes written, want %d", o.Written(), len(whole))
		case !utf8.ValidString(got):
			t.Fatalf("%q is not UTF-8", got)
		case len(whole) <= o.Limit && got != Valid(whole):
			t.Fatalf("%q, want all of %q", got, whole)
		case len(whole) <= o.Limit:
		case !marked:
			t.Fatalf("%q does not say that it is cut", got)
		case utf8.ValidString(whole) && (!strings.HasPrefix(whole, head) || !strings.HasSuffix(whole, tail) || cut != int64(len(whole)-len(head)-len(tail))):
			t.Fatalf("%q of %q", got, whole)
		case utf8.ValidString(whole) && len(head)+len(tail) > o.Limit, utf8.ValidString(whole) && len(head)+len(tail) < o.Limit-2*(utf8.UTFMax-1):
			t.Fatalf("%d and %d bytes of %d", len(head), len(tail), o.Limit)
		}
		if n := cap(o.head) + cap(o.tail); n > 8*o.Limit+64 {
			t.Fatalf("%d bytes of memory for %d", n, o.Limit)
		}
	})
}

func TestShrunkTextKeepsItsEndsAndCountsWhatWasCut(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		whole := Valid(texts(100).Draw(t, "text"))
		got := whole
		for _, most := range rapid.SliceOfN(rapid.IntRange(0, 400), 1, 4).Draw(t, "most") {
			before := got
			got = Shrink(got, most)
			if len(before) <= most && got != before {
				t.Fatalf("%q has room in %d, got %q", before, most, got)
			}
			if len(got) > max(most, markSize) || len(got) > len(before)+markSize {
				t.Fatalf("%q has %d bytes, want at most %d", got, len(got), most)
			}
		}
		head, tail, cut, marked := apart(got)
		if !marked && got != whole || !strings.HasPrefix(whole, head) || !strings.HasSuffix(whole, tail) {
			t.Fatalf("%q of %q", got, whole)
		}
		if marked && cut != int64(len(whole)-len(head)-len(tail)) || !utf8.ValidString(got) {
			t.Fatalf("%q of %q: %d bytes are missing", got, whole, len(whole)-len(head)-len(tail))
		}
	})
}

func TestShrinkByMakesTheJSONSmaller(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		s := Valid(texts(200).Draw(t, "text"))
		over := rapid.IntRange(1, 3000).Draw(t, "over")
		got := ShrinkBy(s, over)
		width := func(s string) int {
			data, err := codec.Marshal(s)
			if n := WidthOf(s, QuotedWidth); err != nil || n != len(data)-2 {
				t.Fatalf("%q has the width %d, want that of %s, %v", s, n, data, err)
			}
			return len(data)
		}
		if width(got) > max(width(s)-over, width(outputMark(int64(len(s))))) {
			t.Fatalf("%q is longer than that of %q by %d", got, s, over)
		}
	})
}

func TestOlderAttemptsShrinkFirst(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		n, size := rapid.IntRange(1, 200).Draw(t, "attempts"), rapid.IntRange(0, job.MaxOutput+markSize).Draw(t, "size")
		attempts := make([]job.Attempt, n)
		for i := range attempts {
			attempts[i].Output = strings.Repeat("x", size)
		}
		ShrinkAttempts(attempts)
		total := 0
		for i, a := range attempts[:n-1] {
			total += len(a.Output)
			if i > 0 && len(a.Output) < len(attempts[i-1].Output) {
				t.Fatalf("attempt %d keeps %d bytes, the one before %d", i+1, len(a.Output), len(attempts[i-1].Output))
			}
			if size > 0 && len(a.Output) < min(size, leastOutput-2*markSize) {
				t.Fatalf("attempt %d keeps %d bytes", i+1, len(a.Output))
			}
		}
		if total > oldOutputs+n*leastOutput || len(attempts[n-1].Output) != size {
			t.Fatalf("the earlier attempts keep %d bytes, the last %d of %d", total, len(attempts[n-1].Output), size)
		}
	})
}
