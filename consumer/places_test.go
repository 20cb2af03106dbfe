package consumer

import (
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// line is slots that want one place, and the order in which they were run.
type line struct {
	*places

	told    sync.Mutex
	ran     []*task // with a place
	refused []*task
}

func newLine() *line {
	l := &line{}
	l.places = newPlaces(1, l.run)
	return l
}

func (l *line) run(t *task) {
	l.told.Lock()
	defer l.told.Unlock()
	if t.placed {
		l.ran = append(l.ran, t)
	} else {
		l.refused = append(l.refused, t)
	}
}

// want is a slot that wants a place. It waits: or it has one already.
func (l *line) want() (t *task, waits bool) {
	t = &task{place: newPlace(l.places)}
	l.admitted++
	return t, t.place.takeFor(t)
}

func TestAPlaceThatIsGivenBackIsThatOfTheFirstInLine(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newLine()
		first, waits := l.want()
		if waits || !first.placed {
			t.Fatal("a place is free")
		}
		var others []*task
		for range 3 {
			other, waits := l.want()
			if !waits {
				t.Fatal("one place, two handlers")
			}
			others = append(others, other)
		}
		var order []*task
		for last := first; last != nil; {
			next := last.place.returned() // its caller runs it
			last.place.end()
			if next != nil {
				order = append(order, next)
			}
			last = next
		}
		if !slices.Equal(order, others) || len(l.ran) > 0 || len(l.refused) > 0 {
			t.Errorf("ran %v of %v, by others %v, refused %v", order, others, l.ran, l.refused)
		}
		if l.free != 1 || l.admitted != 0 {
			t.Errorf("%d places are free, %d slots are admitted", l.free, l.admitted)
		}
	})
}

func TestWhoseHandlerNeverBeganGivesThePlaceOn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newLine()
		first, _ := l.want()
		second, _ := l.want()
		first.place.end()
		if !slices.Equal(l.ran, []*task{second}) {
			t.Errorf("ran %v, want %v", l.ran, second)
		}
	})
}

// What is claimed ahead waits for no longer than a moment, each as long as the next.
func TestWhoWaitsForAPlaceIsRefusedInTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newLine()
		_, _ = l.want()
		l.claim, l.handling = time.Millisecond, time.Millisecond
		second, _ := l.want()
		time.Sleep(patience / 2)
		third, _ := l.want()
		time.Sleep(patience/2 + 1)
		synctest.Wait()
		l.mu.Lock()
		ahead := l.ahead()
		l.mu.Unlock()
		l.told.Lock()
		if !slices.Equal(l.refused, []*task{second}) || ahead != 0 {
			t.Errorf("refused %v, want %v; %d ahead", l.refused, second, ahead)
		}
		l.told.Unlock()
		time.Sleep(patience / 2)
		synctest.Wait()
		l.told.Lock()
		defer l.told.Unlock()
		if !slices.Equal(l.refused, []*task{second, third}) {
			t.Errorf("refused %v, want %v", l.refused, third)
		}
	})
}

func TestNobodyHasAPlaceWhenTheyAreClosed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newLine()
		first, _ := l.want()
		second, _ := l.want()
		told := make(chan bool, 1)
		go func() {
			pl := newPlace(l.places)
			told <- pl.take()
		}()
		synctest.Wait()
		l.close()
		if !slices.Equal(l.refused, []*task{second}) || <-told {
			t.Errorf("refused %v, want %v and who waited itself", l.refused, second)
		}
		first.place.end()
		if third, waits := l.want(); waits || third.placed {
			t.Error("a place is given after they were closed")
		}
	})
}
