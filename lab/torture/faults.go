package torture

import (
	"context"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/cronce-io/cronce/internal/broker/wire"
	"github.com/cronce-io/cronce/internal/fleet/boot"
	"github.com/cronce-io/cronce/internal/lab/proxy"
	"github.com/cronce-io/cronce/lab/torture/plan"
	"github.com/cronce-io/cronce/lab/torture/promise"
)

// runLane carries out the faults of one lane, one after the other.
func (t *torture) runLane(ctx context.Context, lane []plan.Fault) {
	for _, f := range lane {
		if !wire.Wait(ctx, time.Until(t.began.Add(f.At))) {
			return
		}
		since := boot.Now()
		switch f.Kind {
		case plan.Broker:
			t.killBroker(ctx, f)
			t.noteFault(f, "", since)
		case plan.Full:
			t.fill(ctx, f)
			t.noteFault(f, "", since)
		case plan.Freeze, plan.Sleep: // member.freeze notes this fault, from STOP to CONT
			t.runFault(ctx, t.members[f.Target], f)
		default:
			m := t.members[f.Target]
			life := m.current()
			t.runFault(ctx, m, f)
			t.noteFault(f, life, since)
		}
	}
}

// runFault carries out one fault of one process, and returns when the fault is over. At the end it
// heals the proxy.
func (t *torture) runFault(ctx context.Context, m *member, f plan.Fault) {
	t.count(string(f.Kind))
	through := func(fault proxy.Fault, d time.Duration) {
		m.proxy.Set(fault)
		wire.Wait(ctx, d)
	}
	await := func(happened func() bool, patience time.Duration) {
		for began := time.Now(); !happened() && time.Since(began) < patience && ctx.Err() == nil; {
			wire.Wait(ctx, 2*time.Millisecond)
		}
	}
	// when waits for a write of a kind, as long as patience. Without a next fault, the connection is
	// cut before that write is sent. Otherwise the write is sent, and the next fault begins.
	when := func(write string, next *proxy.Fault, patience time.Duration) {
		m.proxy.Set(proxy.Fault{Sever: []byte(t.subjectOf(write)), Then: next})
		await(m.proxy.Severed, patience)
	}
	defer m.proxy.Set(proxy.Fault{})
	switch f.Kind {
	case plan.Kill, plan.Silence:
		m.kill()
		wire.Wait(ctx, f.For)
		m.restart()
	case plan.Term:
		m.term()
		wire.Wait(ctx, f.For)
		m.restart()
	case plan.Leave:
		until := time.Now().Add(f.For)
		m.proxy.Set(proxy.Fault{Lose: []byte(t.subjectOf(plan.WriteSlots))})
		await(m.proxy.HasLost, 5*time.Second)
		wire.Wait(ctx, f.Delay) // until the other producers hold copies of the lost slots
		m.term()
		m.proxy.Set(proxy.Fault{})
		wire.Wait(ctx, time.Until(until))
		m.restart()
	case plan.Freeze:
		thaw := m.freeze(f)
		wire.Wait(ctx, f.For)
		thaw()
	case plan.Sleep:
		m.untilBusy(ctx)
		if f.Write != "" {
			// The write is stored, and its answer arrives while the process is stopped.
			when(f.Write, &proxy.Fault{Hold: true}, 3*time.Second)
		}
		thaw := m.freeze(f)
		m.proxy.Set(proxy.Fault{})
		wire.Wait(ctx, f.For)
		thaw()
	case plan.Cut:
		through(proxy.Fault{Cut: true}, f.For)
	case plan.Slow:
		through(proxy.Fault{Delay: f.Delay, Late: f.Delay}, f.For)
	case plan.Deaf:
		through(proxy.Fault{Deaf: true}, f.For)
	case plan.Lag:
		through(proxy.Fault{Late: f.Delay}, f.For)
	case plan.Clog:
		if !f.Ends {
			through(proxy.Fault{Clogged: true}, f.For)
			break
		}
		through(proxy.Fault{Clogged: true}, f.For/2)
		m.term()
		m.proxy.Set(proxy.Fault{})
		m.restart()
	case plan.Hangup:
		t.hangUp(ctx, m, f)
	case plan.Lose:
		m.untilBusy(ctx)
		t.lose(ctx, m)
		m.kill()
		wire.Wait(ctx, f.For)
		m.restart()
	case plan.Hold:
		until := time.Now().Add(f.For)
		// A heartbeat is stored. Its answer and all later ones are lost.
		when(plan.WriteNodes, &proxy.Fault{Deaf: true}, t.cfg.Lease/5)
		through(proxy.Fault{Deaf: true}, f.Delay)
		// On a new connection the heartbeat is repeated and answered. Then comes the cut.
		when(plan.WriteNodes, &proxy.Fault{}, t.cfg.Lease/4)
		wire.Wait(ctx, plan.AnswerWithin(t.cfg.Lease))
		through(proxy.Fault{Cut: true}, time.Until(until))
	case plan.Sever:
		var next *proxy.Fault
		if f.Landed {
			next = &proxy.Fault{Deaf: true}
		}
		when(f.Write, next, f.For)
		if f.Landed {
			wire.Wait(ctx, 100*time.Millisecond) // until the write is stored
		}
	}
}

// hangUp adds jobs to the file of a process and removes jobs, with a HUP each time. At the end the
// file has all jobs.
func (t *torture) hangUp(ctx context.Context, m *member, f plan.Fault) {
	r := rand.New(rand.NewPCG(t.cfg.Seed, uint64(f.At)))
	write := func(names []string) {
		fresh := m.jobFile() + ".new" // so that no process reads half a file
		err := os.WriteFile(fresh, []byte(strings.Join(names, "\n")), 0o600)
		if err == nil {
			err = os.Rename(fresh, m.jobFile())
		}
		if err != nil {
			t.fail(err)
		}
		m.hangUp()
	}
	all := plan.CaseNames(t.cases)
	for until := time.Now().Add(f.For); time.Now().Before(until); {
		write(slices.DeleteFunc(slices.Clone(all), func(string) bool { return r.IntN(2) == 0 }))
		if !wire.Wait(ctx, plan.Between(r, 20*time.Millisecond, 500*time.Millisecond)) {
			break
		}
	}
	write(all)
}

// lose deletes the messages of the slots that a process runs. So the stream cannot deliver them to
// another worker, and only a search for records without an outcome finds these slots.
func (t *torture) lose(ctx context.Context, m *member) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	stream, err := t.js.Stream(ctx, t.cfg.Namespace+"_slots")
	for _, sequence := range t.witness.messagesOf(m.name + "-") {
		if err != nil {
			return // the servers do not answer
		}
		err = stream.DeleteMsg(ctx, sequence)
	}
}

// fill makes a stream refuse all writes for a while, as a full stream does.
func (t *torture) fill(ctx context.Context, f plan.Fault) {
	t.count(string(plan.Full))
	name := "KV_" + t.cfg.Namespace + "_" + f.Write
	if f.Write == plan.WriteSlots {
		name = t.cfg.Namespace + "_" + f.Write
	}
	t.limitBytes(ctx, name, 1)
	wire.Wait(ctx, f.For)
	t.limitBytes(t.fleetCtx, name, -1) // with a context that outlives this phase: the fleet needs the stream
}

// limitBytes sets the largest size of a stream. It retries until that succeeds or ctx ends.
func (t *torture) limitBytes(ctx context.Context, name string, most int64) {
	for t.limitBytesOnce(ctx, name, most) != nil && wire.Wait(ctx, 200*time.Millisecond) {
	}
}

func (t *torture) limitBytesOnce(ctx context.Context, name string, most int64) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	stream, err := t.js.Stream(ctx, name)
	if err != nil {
		return err
	}
	cfg := stream.CachedInfo().Config
	cfg.MaxBytes = most
	_, err = t.js.UpdateStream(ctx, cfg)
	return err
}

// subjectOf returns the prefix of the subjects to which a kind of write is published.
func (t *torture) subjectOf(write string) string {
	switch write {
	case plan.WriteSlots:
		return t.cfg.Namespace + ".slot."
	case plan.WriteAcks:
		return "$JS.ACK." + t.cfg.Namespace + "_slots."
	}
	return "$KV." + t.cfg.Namespace + "_" + write + "."
}

// noteFault records that a fault lasted from since until now. life is the life of a process that it
// hit; it is empty for faults of streams and servers. Some rules of the check are about what a fault
// does, others about processes that no fault hit.
func (t *torture) noteFault(f plan.Fault, life string, since time.Duration) {
	t.note(promise.Line{What: promise.LineFault, Kind: f.Kind, Of: life, From: since, Delay: f.Delay})
}

// noteAnswer records a pause of the servers if they took long to answer this process. Its connection
// has no proxy, so no fault of another process explains that.
func (t *torture) noteAnswer(sent time.Duration, err error) {
	if err != nil || boot.Now()-sent > promise.SlowAnswer {
		t.note(promise.Line{What: promise.LinePause, Process: promise.ServerProcess, From: sent})
	}
}

func (t *torture) note(l promise.Line) {
	if err := t.notes.add(l); err != nil {
		t.fail(err)
	}
}
