// Package plan draws from a seed the faults of a run of torture. It also has the table of jobs
// that the fleet runs meanwhile.
package plan

import (
	"cmp"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"io"
	"math/rand/v2"
	"slices"
	"time"
)

// Kind is a kind of fault.
type Kind string

const (
	Kill    Kind = "kill"    // KILL of a process, which is started again after For
	Term    Kind = "term"    // TERM of a process, which is started again after For
	Freeze  Kind = "freeze"  // STOP for less than the lease, then CONT
	Sleep   Kind = "sleep"   // STOP for longer than the lease, in the middle of a handler or of a Write, then CONT
	Cut     Kind = "cut"     // no connection to the servers
	Slow    Kind = "slow"    // each byte comes later by Delay, in both directions
	Deaf    Kind = "deaf"    // everything from the servers is lost
	Hold    Kind = "hold"    // a heartbeat is stored, and answered only when it is repeated; then a cut
	Sever   Kind = "sever"   // the connection is cut at a kind of write, before or after it is sent
	Broker  Kind = "broker"  // KILL of a server, which is started again after For
	Silence Kind = "silence" // KILL of every process that publishes, for so long that catch-up policies apply
	Lag     Kind = "lag"     // everything from the servers comes later by Delay
	Clog    Kind = "clog"    // connections stay open, and nothing is read from them, in either direction
	Hangup  Kind = "hangup"  // many HUPs; before each, jobs are added to the process's file or removed from it
	Lose    Kind = "lose"    // the messages of a worker's running slots are deleted, and the worker is killed
	Full    Kind = "full"    // a stream accepts no more bytes
	Leave   Kind = "leave"   // the slots that a producer publishes are lost for Delay, and then it gets a TERM
)

// Fault is one planned fault.
type Fault struct {
	// At is when the fault begins, counted from the beginning of the torture.
	At time.Duration

	Kind Kind

	// Target is the index of a server for Broker, and of a process otherwise. Full does not use it.
	Target int

	// For is how long the fault lasts.
	For time.Duration

	// Delay is how late bytes arrive (Slow, Lag), how late the answer arrives (Hold), or how long the
	// slots are lost before the TERM is sent (Leave). Write is the kind of write that Sever and Sleep
	// wait for, or whose stream is full (Full). If Landed is true, Sever cuts after the write was sent.
	// If Ends is true, the process gets a TERM in the middle of a Clog.
	Delay  time.Duration
	Write  string
	Landed bool
	Ends   bool
}

// AnswerWithin is how long a Hold waits for the answer to the repeated heartbeat before it cuts the
// connection. It is less than the time between two heartbeats.
func AnswerWithin(lease time.Duration) time.Duration { return min(lease/40, 300*time.Millisecond) }

// Kinds of writes, for Fault.Write.
const (
	WriteLedger = "ledger"
	WriteNodes  = "nodes"
	WriteState  = "state"
	WriteSlots  = "slots"
	WriteAcks   = "acks"
)

// Shape is the input of a plan.
type Shape struct {
	Seed     uint64
	Duration time.Duration

	// Lease is the lease of the namespace.
	Lease time.Duration

	// Workers run slots, and every second worker publishes slots too. Producers only publish.
	Workers, Producers int

	// Servers is how many servers to start, kill and end. Zero: torture uses the user's servers, and
	// does not stop them.
	Servers int
}

// Publishes reports whether process i publishes slots: every producer and every second worker does.
func (s Shape) Publishes(i int) bool { return i >= s.Workers || i%2 == 0 }

// Plan is the faults of a run. The same shape always has the same plan. Each process has a lane of
// faults. The servers together have one, and so have the streams. The faults of one lane never
// overlap.
type Plan struct {
	Lanes [][]Fault
}

// Promptly is the largest delay that the check allows for a slot's publication while an undisturbed
// producer is up.
const Promptly = 5 * time.Second

// Settled is how long after its last fault a process still counts as disturbed: its lease may have
// to expire, and its next incarnation must start.
func Settled(lease time.Duration) time.Duration { return lease + 5*time.Second }

// NewPlan draws a plan from the seed.
func NewPlan(s Shape) Plan {
	var p Plan
	for i := range s.Workers + s.Producers {
		p.Lanes = append(p.Lanes, s.lane(i))
	}
	if s.Servers > 0 {
		p.Lanes = append(p.Lanes, s.brokers())
	}
	p.Lanes = append(p.Lanes, s.limits())
	if s.Duration >= silenceFrom {
		s.silence(&p)
	}
	if from, ok := s.calm(&p); ok {
		s.leave(&p, from)
	}
	return p
}

// Runs that last at least silenceFrom have a Silence.
const silenceFrom = 4 * time.Minute

// rand returns the source of random numbers of a lane.
func (s Shape) rand(lane string) *rand.Rand {
	h := fnv.New64a()
	_, _ = io.WriteString(h, lane)
	return rand.New(rand.NewPCG(s.Seed, h.Sum64()))
}

func (s Shape) lane(i int) []Fault {
	r := s.rand(fmt.Sprintf("process %d", i))
	worker := i < s.Workers
	at := Between(r, time.Second, 8*time.Second)
	var lane []Fault
	if i == 0 {
		// Short runs must be conclusive too, so this worker is stopped for longer than its lease in
		// the middle of a handler.
		at = 2 * time.Second
		lane = append(lane, Fault{At: at, Kind: Sleep, Target: i, For: s.Lease*5/4 + 2*time.Second})
		at += lane[0].For + Between(r, time.Second, 4*time.Second)
	}
	for {
		f := s.fault(r, i, worker)
		f.At, f.Target = at, i
		if f.At+f.For > s.Duration {
			return lane
		}
		lane = append(lane, f)
		at += f.For + Between(r, 500*time.Millisecond, 6*time.Second)
	}
}

func (s Shape) fault(r *rand.Rand, i int, worker bool) Fault {
	L := s.Lease
	kinds := []Kind{Kill, Kill, Kill, Term, Term, Freeze, Cut, Cut, Slow, Deaf, Hold, Sever, Sever, Sever, Sever, Lag, Lag, Clog, Clog}
	if worker {
		kinds = append(kinds, Sleep, Sleep, Freeze, Hangup, Hangup)
		if s.Duration >= loseFrom {
			kinds = append(kinds, Lose)
		}
	}
	f := Fault{Kind: kinds[r.IntN(len(kinds))]}
	switch f.Kind {
	case Kill, Term, Lose:
		f.For = Between(r, 0, 3*time.Second)
	case Freeze:
		f.For = Between(r, L/10, L*3/4)
	case Sleep:
		f.For = L*5/4 + Between(r, time.Second, L/2+2*time.Second)
		if r.IntN(3) == 0 {
			f.Write = WriteLedger
		}
	case Cut, Deaf:
		f.For = Between(r, L/10, L*3/2)
	case Slow:
		f.For, f.Delay = Between(r, time.Second, L), Between(r, 5*time.Millisecond, 200*time.Millisecond)
	case Lag:
		// A Lag lasts longer than a lease. So a lease that is lost near its end was not lost because of
		// an earlier fault.
		f.For, f.Delay = Between(r, L*3/2, L*2+2*time.Second), Between(r, slowest/10, max(slowest/10, min(slowest, L/4)))
		if r.IntN(4) == 0 {
			f.Delay = Between(r, slowest/10, slowest)
		}
	case Clog:
		f.For, f.Ends = Between(r, 2*time.Second, max(L*3/2, 8*time.Second)), r.IntN(3) == 0
	case Hangup:
		f.For = Between(r, 2*time.Second, 6*time.Second)
	case Hold:
		f.Delay = Between(r, L*35/100, L*6/10)
		f.For = f.Delay + AnswerWithin(L) + L*9/5
	case Sever:
		f.For = 3 * time.Second
		f.Landed = r.IntN(2) == 0
		writes := []string{WriteNodes, WriteState, WriteSlots}
		if worker {
			writes = []string{WriteLedger, WriteLedger, WriteLedger, WriteAcks, WriteNodes, WriteSlots}
		}
		if worker && !s.Publishes(i) {
			writes = writes[:5]
		}
		f.Write = writes[r.IntN(len(writes))]
	}
	return f
}

// brokers draws the faults of the servers. At most one server is down at any time.
func (s Shape) brokers() []Fault {
	r := s.rand("servers")
	var lane []Fault
	for at := Between(r, 8*time.Second, 14*time.Second); ; {
		f := Fault{At: at, Kind: Broker, Target: r.IntN(s.Servers), For: Between(r, 0, 4*time.Second)}
		if r.IntN(4) == 0 {
			f.For = Between(r, 4*time.Second, 10*time.Second)
		}
		if f.At+f.For+5*time.Second > s.Duration {
			return lane
		}
		lane = append(lane, f)
		at += f.For + Between(r, 12*time.Second, 24*time.Second)
	}
}

// slowest is the largest delay of a Lag. The smallest is a tenth of it.
const slowest = 5 * time.Second

// Only runs that last at least loseFrom have a Lose. The fleet may need two minutes to find a lost
// slot, and a short run should not wait for that.
const loseFrom = 45 * time.Second

// limits draws the faults of the streams. Each makes one stream full for a while.
func (s Shape) limits() []Fault {
	r := s.rand("limits")
	var lane []Fault
	for at := Between(r, 5*time.Second, 15*time.Second); ; {
		f := Fault{At: at, Kind: Full, For: Between(r, time.Second, 5*time.Second), Write: []string{WriteLedger, WriteSlots}[r.IntN(2)]}
		if f.At+f.For > s.Duration {
			return lane
		}
		lane = append(lane, f)
		at += f.For + Between(r, 10*time.Second, 30*time.Second)
	}
}

// MaxPayload is the max_payload of the servers that torture starts. It is so small that some records
// must be cut.
func (s Shape) MaxPayload() int {
	return []int{16 << 10, 32 << 10, 64 << 10}[s.rand("payload").IntN(3)]
}

// calm removes the faults of one process that publishes, and those of the servers and the
// streams, for a stretch of time. In that stretch no slot may be published late, whatever happens to
// the other processes. calm returns when the stretch begins. It returns false if the run is too
// short, or if only process 0 publishes.
func (s Shape) calm(p *Plan) (from time.Duration, ok bool) {
	i := s.lastPublisher(s.Workers + s.Producers)
	until := s.Duration
	if s.Duration >= silenceFrom {
		until = s.Duration * 4 / 10 // the Silence may begin there
	}
	length := Settled(s.Lease) + Promptly + 10*time.Second
	const soonest, recovered = 5 * time.Second, 10 * time.Second
	if i == 0 || soonest+length > until {
		return 0, false
	}
	from = Between(s.rand("calm"), soonest, until-length)
	for lane := range p.Lanes {
		if lane == i || lane >= s.Workers+s.Producers {
			p.clear(lane, from-recovered, from+length)
		}
	}
	return from, true
}

// clear removes the faults of a lane that overlap a stretch of time.
func (p *Plan) clear(lane int, from, until time.Duration) {
	p.Lanes[lane] = slices.DeleteFunc(p.Lanes[lane], func(f Fault) bool { return f.At < until && f.At+f.For > from })
}

// add inserts a fault into the lane of its target.
func (p *Plan) add(f Fault) {
	lane := append(p.Lanes[f.Target], f)
	slices.SortFunc(lane, func(a, b Fault) int { return cmp.Compare(a.At, b.At) })
	p.Lanes[f.Target] = lane
}

// lastPublisher returns the last process before i that publishes slots. Process 0 does.
func (s Shape) lastPublisher(i int) int {
	for i--; i > 0 && !s.Publishes(i); i-- {
	}
	return i
}

// leave adds a Leave to the calm stretch. The other producers hold copies of the slots that
// are lost, and must publish them immediately when the producer leaves. They have no faults meanwhile: a
// producer that starts continues at the watermark, and would publish the slots in any case.
func (s Shape) leave(p *Plan, calm time.Duration) {
	i := s.lastPublisher(s.lastPublisher(s.Workers + s.Producers))
	if i == 0 {
		return
	}
	const startUp = 5 * time.Second
	const lost = 2 * time.Second // enough for a slot to fall due, and for the producer to end
	// Within a second of the loss the other producers hold copies, even if their clocks are inexact.
	// After two seconds they would publish the copies even if the producer did not leave.
	f := Fault{Kind: Leave, Target: i, At: calm + Settled(s.Lease), For: lost + Promptly + 3*time.Second}
	f.Delay = Between(s.rand("leave"), time.Second, 1600*time.Millisecond)
	proof, rest := p.Lanes[0][0], p.Lanes[0][1:]
	p.Lanes[0] = rest
	for lane := range s.Workers + s.Producers {
		if s.Publishes(lane) {
			p.clear(lane, f.At-startUp, f.At+f.For)
		}
	}
	p.add(proof) // the first fault of the first worker stays: without it, a run may be inconclusive
	p.add(f)
}

// silence adds a Silence of all processes that publish. It is so long that catch-up policies apply
// to its first slots.
func (s Shape) silence(p *Plan) {
	r := s.rand("silence")
	from := Between(r, s.Duration*4/10, s.Duration/2)
	until := from + Between(r, 72*time.Second, 82*time.Second)
	for i := range s.Workers + s.Producers {
		if s.Publishes(i) {
			p.clear(i, from, until)
			p.add(Fault{At: from, Kind: Silence, Target: i, For: until - from})
		}
	}
}

// Offset is the error of the clock in a life of process i. Only the first worker may get a clock so
// wrong that the worker refuses to publish.
func (s Shape) Offset(i, life int) time.Duration {
	r := s.rand(fmt.Sprintf("clock %d %d", i, life))
	offsets := []time.Duration{0, -90 * time.Second, 90 * time.Second, 300 * time.Millisecond, -5 * time.Second, 45 * time.Minute}
	if i == 0 {
		offsets = append(offsets, 2*time.Hour, -2*time.Hour)
	}
	return offsets[r.IntN(len(offsets))]
}

// foreign returns the jobs that a client in another language has handlers for, and what their
// attempts do there. Such a client cannot draw from the seed as Case.Attempt does, so the payload of
// the job says what to do. Jobs with shards are left out: a client may leave shards to others.
func foreign(lease time.Duration) map[string]Act {
	return map[string]Act{
		"steady": {Work: 150 * time.Millisecond}, "long": {Work: 3 * lease / 2}, "once": {Work: lease / 2}, "permanent": {Result: ResultPermanent},
		"deadline": {Work: 100 * time.Millisecond}, "newest": {}, "none": {}, "cron": {Work: 100 * time.Millisecond},
		"skip": {Work: 2 * time.Second}, "queue": {Work: time.Second}, "latest": {Work: 2 * time.Second}, "replace": {Work: 5 * time.Second},
		"pair": {Work: 3 * time.Second}, "triggered": {Work: 100 * time.Millisecond},
		"flaky": {Work: 100 * time.Millisecond}, "thrice": {Work: lease / 4}, "panics": {Result: ResultError}, "dies": {Result: ResultError},
		"timeout": {Work: time.Hour}, "again": {Work: 100 * time.Millisecond}, "wordy": {}, "finish": {Work: lease / 2},
	}
}

// ForeignNames returns the names of the jobs that a client in another language has handlers for.
func ForeignNames(cases []Case) []string {
	acts := foreign(time.Second)
	return slices.DeleteFunc(CaseNames(cases), func(name string) bool { _, ok := acts[name]; return !ok })
}

// payload returns the payload that says to a client in another language what an attempt does.
func (a Act) payload() json.RawMessage {
	a.Result = cmp.Or(a.Result, ResultOK)
	data, err := json.Marshal(map[string]any{"ms": a.Work.Milliseconds(), "result": a.Result})
	if err != nil {
		panic(err) // cannot happen: the value is a number and a string
	}
	return data
}
