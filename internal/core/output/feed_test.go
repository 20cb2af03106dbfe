package output

import (
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestFeedSendsEverythingUpToItsRate(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var f Feed
		var whole string
		var sent int64
		now := time.Unix(0, 0)
		left := false // output was left out
		take := func(last bool) {
			for _, p := range f.Take(last) {
				if p.From < sent || p.From > sent && !left || p.To > int64(len(whole)) || p.To < p.From || p.To == p.From && (!left || p.From == sent) {
					t.Fatalf("%d to %d after %d of %d, some left out: %v", p.From, p.To, sent, len(whole), left)
				}
				if p.Text != Valid(whole[p.From:p.To]) || len(p.Text) > 3*maxPiece {
					t.Fatalf("%.40q, want %.40q", p.Text, whole[p.From:p.To])
				}
				sent = p.To
			}
		}
		for range rapid.IntRange(1, 30).Draw(t, "steps") {
			switch rapid.IntRange(0, 3).Draw(t, "do") {
			case 0:
				take(false)
			case 1:
				now = now.Add(time.Duration(rapid.IntRange(0, 700).Draw(t, "ms")) * time.Millisecond)
			default:
				p := strings.Repeat(texts(5).Draw(t, "text"), rapid.SampledFrom([]int{1, 7, 1000, 20_000}).Draw(t, "times"))
				f.Add([]byte(p), int64(len(whole)), now)
				left = left || f.full
				whole += p
				if len(f.pending) > 2*Rate {
					t.Fatalf("%d bytes are pending", len(f.pending))
				}
			}
		}
		take(true)
		if sent != int64(len(whole)) {
			t.Fatalf("told of %d bytes of %d", sent, len(whole))
		}
	})
}

func TestFeedLeavesOutTheRestOfASecond(t *testing.T) {
	t.Parallel()
	var f Feed
	now, sent, written := time.Unix(0, 0), 0, 0
	for range 100 { // ten seconds of 10 KiB every 100 ms
		f.Add(make([]byte, 10<<10), int64(written), now)
		written += 10 << 10
		for _, p := range f.Take(false) {
			sent += len(p.Text)
		}
		now = now.Add(100 * time.Millisecond)
	}
	if sent != 10*Rate {
		t.Errorf("%d bytes are sent in ten seconds, want %d", sent, 10*Rate)
	}
	f.Add([]byte("x"), int64(written), now.Add(time.Second))
	if p := f.Take(true); len(p) != 1 || p[0].From != int64(written) || p[0].Text != "x" {
		t.Errorf("got %+v", p)
	}
}
