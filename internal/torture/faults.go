package torture

import (
	"context"
	"time"
)

// suffer lets the faults of one lane happen, one after the other, and leaves
// everything whole.
func (t *torture) suffer(ctx context.Context, lane []Fault) {
	for _, f := range lane {
		if !sleep(ctx, time.Until(t.began.Add(f.At))) {
			return
		}
		if f.Kind == Broker {
			t.killBroker(ctx, f)
		} else {
			t.happen(ctx, t.members[f.Target], f)
		}
	}
}

// happen is one fault of one process. It is over when happen returns.
func (t *torture) happen(ctx context.Context, m *member, f Fault) {
	t.count(string(f.Kind))
	through := func(fault link, d time.Duration) {
		m.proxy.set(fault)
		sleep(ctx, d)
	}
	switch f.Kind {
	case Kill, Silence:
		m.kill()
		sleep(ctx, f.For)
		m.again()
	case Term:
		m.term()
		sleep(ctx, f.For)
		m.again()
	case Freeze:
		goOn := m.hold()
		sleep(ctx, f.For)
		goOn()
	case Sleep:
		m.untilBusy(ctx)
		goOn := m.hold()
		sleep(ctx, f.For)
		goOn()
	case Cut:
		through(link{apart: true}, f.For)
		m.proxy.set(link{})
	case Slow:
		through(link{delay: f.Delay}, f.For)
		m.proxy.set(link{})
	case Deaf:
		through(link{deaf: true}, f.For)
		m.proxy.set(link{})
	case Hold:
		through(link{hold: true}, f.Delay)
		through(link{}, heard)
		through(link{apart: true}, f.For-f.Delay-heard)
		m.proxy.set(link{})
	case Sever:
		m.proxy.set(link{sever: []byte(t.subjectOf(f.Write)), landed: f.Landed})
		for began := time.Now(); !m.proxy.severed() && time.Since(began) < f.For; {
			if !sleep(ctx, 5*time.Millisecond) {
				break
			}
		}
		if f.Landed {
			sleep(ctx, 100*time.Millisecond) // for what is severed to land
		}
		m.proxy.set(link{})
	}
}

// subjectOf begins the subjects of writes of a kind.
func (t *torture) subjectOf(write string) string {
	if write == writeSlots {
		return t.cfg.Namespace + ".slot."
	}
	return "$KV." + t.cfg.Namespace + "_" + write + "."
}
