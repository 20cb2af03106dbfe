package consumer

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// queued is a claimed task of the consumer that waits for the one permit of a limiter.
func queued(c *Consumer, l *limiter) *task {
	t := &task{Consumer: c, fence: 1}
	if l.admit(t) && !t.permit && l.acquire(t) {
		panic("two permits")
	}
	return t
}

// resumed returns the tasks that the limiter has resumed since the last call.
func resumed(l *limiter) func() []*task {
	var tasks []*task
	l.resume = func(t *task) { tasks = append(tasks, t) }
	return func() []*task {
		synctest.Wait()
		some := tasks
		tasks = nil
		return some
	}
}

func taken(c *Consumer) (*limiter, *task) {
	l := newLimiter(1)
	c.limiter = l
	first := &task{Consumer: c}
	if !l.admit(first) || !first.permit {
		panic("no permit")
	}
	return l, first
}

func TestAReleasedPermitPassesToTheFirstInLine(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := &Consumer{}
		l, first := taken(c)
		want := []*task{queued(c, l), queued(c, l), queued(c, l)}
		var got []*task
		for next := l.returned(0); next != nil; next = l.returned(0) {
			if !next.permit || next.pending {
				t.Errorf("the next one has permit=%v, ahead=%v", next.permit, next.pending)
			}
			got = append(got, next)
		}
		if !slices.Equal(got, want) || first == nil {
			t.Errorf("the order is %v, want %v", got, want)
		}
		if l.taken != 0 || l.pending != 0 || len(l.waiters) != 0 {
			t.Errorf("%d permits taken, %d tasks without one, %d in line", l.taken, l.pending, len(l.waiters))
		}
	})
}

// A message is admitted without a permit only if at least as many short handlers have recently
// returned as there are permits.
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
		if got, want := window(), 4+4*maxBurst; got != want {
			t.Errorf("soon after a burst %d messages may be asked for, want %d", got, want)
		}
		l.taken++
		l.returned(paceInterval)
		if got := window(); got != 4 {
			t.Errorf("after a burst and a handler that was not short %d messages may be asked for, want 4", got)
		}
		for range 40 {
			l.taken++
			l.returned(time.Millisecond)
		}
		time.Sleep(paceInterval)
		window()
		time.Sleep(paceMemory + 1)
		if got := window(); got != 4 {
			t.Errorf("when nothing has returned for long %d messages may be asked for, want 4", got)
		}
	})
}

func TestTheLimiterRefusesTasksThatWaitForLong(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := &Consumer{}
		l, _ := taken(c)
		refused := resumed(l)
		l.pace = pace{since: time.Now(), current: 10}
		first := queued(c, l)
		time.Sleep(maxWait / 2)
		second := queued(c, l)
		time.Sleep(maxWait/2 + 1)
		if got := refused(); !slices.Equal(got, []*task{first}) || first.permit {
			t.Errorf("%d tasks are resumed, the first with permit=%v; want the first without", len(got), first.permit)
		}
		l.mu.Lock()
		if n := l.maxPending(); n != 0 {
			t.Errorf("%d messages may still be here ahead", n)
		}
		l.mu.Unlock()
		time.Sleep(maxWait)
		if got := refused(); !slices.Equal(got, []*task{second}) || second.permit {
			t.Errorf("%d tasks are resumed, the second with permit=%v; want the second without", len(got), second.permit)
		}
		if l.pending != 0 {
			t.Errorf("%d tasks count as waiting", l.pending)
		}
	})
}

// Those of another consumer, a later incarnation, go on waiting.
func TestALimiterThatIsClosedForAConsumerRefusesItsTasksOnly(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		older, younger := &Consumer{}, &Consumer{}
		l, _ := taken(older)
		refused := resumed(l)
		ends, goesOn := queued(older, l), queued(younger, l)
		l.close(older)
		if got := refused(); !slices.Equal(got, []*task{ends}) || ends.permit {
			t.Errorf("%d tasks are resumed, with permit=%v; want the one of the consumer that has ended, without", len(got), ends.permit)
		}
		if next := l.release(); next != goesOn || !next.permit {
			t.Error("the other task got no permit")
		}
	})
}
