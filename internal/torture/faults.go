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
	// when waits for a write of a kind, and then has something happen to it.
	when := func(write string, then *link, patience time.Duration) {
		m.proxy.set(link{sever: []byte(t.subjectOf(write)), then: then})
		for began := time.Now(); !m.proxy.severed() && time.Since(began) < patience && ctx.Err() == nil; {
			sleep(ctx, 2*time.Millisecond)
		}
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
		if f.Write != "" {
			// The write lands, and its answer finds a sleeper.
			when(f.Write, &link{hold: true}, 3*time.Second)
		}
		goOn := m.hold()
		m.proxy.set(link{})
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
		until := time.Now().Add(f.For)
		// A heartbeat lands, and its answer is lost; so is what follows.
		when(writeNodes, &link{deaf: true}, t.cfg.Lease/5)
		through(link{deaf: true}, f.Delay)
		// On a new connection it is repeated and answered, and that is all.
		when(writeNodes, &link{}, t.cfg.Lease/4)
		sleep(ctx, heard(t.cfg.Lease))
		through(link{apart: true}, time.Until(until))
		m.proxy.set(link{})
	case Sever:
		var then *link
		if f.Landed {
			then = &link{deaf: true}
		}
		when(f.Write, then, f.For)
		if f.Landed {
			sleep(ctx, 100*time.Millisecond) // for what is severed to land
		}
		m.proxy.set(link{})
	}
}

// subjectOf begins the subjects of writes of a kind.
func (t *torture) subjectOf(write string) string {
	switch write {
	case writeSlots:
		return t.cfg.Namespace + ".slot."
	case writeAcks:
		return "$JS.ACK." + t.cfg.Namespace + "_slots."
	}
	return "$KV." + t.cfg.Namespace + "_" + write + "."
}
