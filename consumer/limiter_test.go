package consumer

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// queued is a task of the consumer that a limiter of one place, which is taken, has in
// its line, or has admitted ahead of one.
func queued(c *Consumer, l *limiter) *task {
	t := &task{Consumer: c, fence: 1} // claimed: whoever releases the place gets it to run
	if l.admit(t) && !t.placed && l.place(t) {
		panic("two places")
	}
	return t
}

func taken(c *Consumer) (*limiter, *task) {
	l := newLimiter(1)
	c.limiter = l
	first := &task{Consumer: c}
	if !l.admit(first) || !first.placed {
		panic("no place")
	}
	return l, first
}

func TestAReleasedPlacePassesToTheFirstInLine(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := &Consumer{}
		l, first := taken(c)
		want := []*task{queued(c, l), queued(c, l), queued(c, l)}
		var got []*task
		for next := l.returned(0); next != nil; next = l.returned(0) {
			if !next.placed || next.ahead {
				t.Errorf("the next one has placed=%v, ahead=%v", next.placed, next.ahead)
			}
			got = append(got, next)
		}
		if !slices.Equal(got, want) || first == nil {
			t.Errorf("the order is %v, want %v", got, want)
		}
		if l.taken != 0 || l.unplaced != 0 || len(l.line) != 0 {
			t.Errorf("%d places taken, %d tasks without one, %d in line", l.taken, l.unplaced, len(l.line))
		}
	})
}

// A message is admitted without a place only if each place was released once of late.
func TestMessagesAreAdmittedAheadOnlyBehindShortHandlers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter(4)
		window := func() int {
			n := l.reserve(0, 1000)
			l.forget(n)
			return n
		}
		for took, want := range map[time.Duration]int{time.Millisecond: 4 + 40, time.Second: 4} {
			l.pace = pace{}
			for range 40 {
				l.taken++
				l.returned(took)
			}
			if got := window(); got != want {
				t.Errorf("after 40 handlers of %v %d messages may be asked for, want %d", took, got, want)
			}
		}
		l.pace = pace{}
		for range 3 {
			l.taken++
			l.returned(time.Millisecond)
		}
		if got := window(); got != 4 {
			t.Errorf("after 3 short handlers %d messages may be asked for, want 4", got)
		}
		for range 40 {
			l.taken++
			l.returned(time.Millisecond)
		}
		time.Sleep(3 * paceInterval)
		if got := window(); got != 4 {
			t.Errorf("when nothing has returned for long %d messages may be asked for, want 4", got)
		}
	})
}

func TestTheLimiterRefusesThoseWhoWaitForLong(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := &Consumer{crew: newCrew(1)}
		l, _ := taken(c)
		l.pace = pace{since: time.Now(), now: 10}
		waits := func() chan bool {
			placed := make(chan bool, 1)
			go func() { placed <- l.wait(&task{Consumer: c}) }()
			synctest.Wait()
			return placed
		}
		first := waits()
		time.Sleep(patience / 2)
		second := waits()
		time.Sleep(patience/2 + 1)
		synctest.Wait()
		select {
		case placed := <-first:
			if placed {
				t.Error("it got a place that was taken")
			}
		default:
			t.Error("the first still waits")
		}
		if len(second) > 0 {
			t.Error("the second was refused too early")
		}
		l.mu.Lock()
		if n := l.ahead(); n != 0 {
			t.Errorf("%d messages may still be in hand ahead", n)
		}
		l.mu.Unlock()
		time.Sleep(patience)
		if <-second {
			t.Error("the second got a place that was taken")
		}
		if l.unplaced != 0 {
			t.Errorf("%d tasks count as waiting", l.unplaced)
		}
	})
}

// Those of another consumer, a later incarnation, go on waiting.
func TestACloseRefusesThoseOfItsConsumerOnly(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		old, young := &Consumer{crew: newCrew(1)}, &Consumer{crew: newCrew(1)}
		l, _ := taken(old)
		placed := map[*Consumer]chan bool{old: make(chan bool, 1), young: make(chan bool, 1)}
		for _, c := range []*Consumer{old, young} {
			go func() { placed[c] <- l.wait(&task{Consumer: c}) }()
			synctest.Wait()
		}
		l.close(old)
		if <-placed[old] {
			t.Error("a consumer that has ended got a place")
		}
		l.release()
		if !<-placed[young] {
			t.Error("the other got no place")
		}
	})
}
