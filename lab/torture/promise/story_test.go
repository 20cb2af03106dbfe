package promise

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/cronce-io/cronce/internal/core"
	"github.com/cronce-io/cronce/internal/core/exchange"
	"github.com/cronce-io/cronce/job"
	"github.com/cronce-io/cronce/lab/torture/plan"
)

// story builds a history. Its times are seconds after the instant of the first slot, by the
// broker's clock.
type story struct {
	h    History
	seq  uint64
	last map[string]uint64 // revision of each key
}

var storyBegan = time.Date(2026, 11, 21, 7, 0, 0, 0, time.UTC)

// storyBoot is the boot time at storyBegan.
const storyBoot = 1000 * time.Second

const storyLease = 3 * time.Second

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

func at(s float64) time.Time { return storyBegan.Add(seconds(s)) }

// newStory returns a story with these jobs: a (retried until it succeeds), once (one attempt),
// serial (one slot after the other), skip, line (in order), quick (a timeout and a deadline),
// finish, and late (runs only its newest slot). Each has a slot at 0. serial, skip and line have
// another at 10.
func newStory() *story {
	s := &story{last: map[string]uint64{}}
	all := job.CatchUp{Policy: job.CatchUpAll}
	patient := job.Retry{Attempts: 1000, Backoff: 200 * time.Millisecond, MaxBackoff: time.Second}
	act := func(*rand.Rand, int) plan.Act { return plan.Act{} }
	add := func(j job.Job, outcomes ...job.State) {
		if j.Overlap == "" {
			j.Overlap = job.OverlapAllow
		}
		every := 20 * time.Second
		if j.Guarded() {
			every = 10 * time.Second
		}
		j.Schedule = fmt.Sprintf("@every %v", every)
		s.h.Cases = append(s.h.Cases, plan.Case{Job: j, Every: every, Act: act, Outcomes: outcomes})
	}
	add(job.Job{Name: "a", Retry: patient, CatchUp: all}, job.Succeeded)
	add(job.Job{Name: "once", Retry: job.Retry{Attempts: 1}, CatchUp: all}, job.Succeeded, job.Failed)
	add(job.Job{Name: "skip", Overlap: job.OverlapSkip, Retry: patient, CatchUp: all}, job.Succeeded, job.Skipped)
	add(job.Job{Name: "line", Overlap: job.OverlapQueue, Retry: patient, CatchUp: all}, job.Succeeded)
	add(job.Job{Name: "newer", Overlap: job.OverlapReplace, Retry: patient, CatchUp: all}, job.Succeeded, job.Cancelled)
	add(job.Job{Name: "quick", Timeout: time.Second, Deadline: 2 * time.Second, CatchUp: all}, job.Succeeded, job.Failed, job.Expired)
	add(job.Job{Name: "finish", OnLeaseLost: job.LeaseLostFinish, Retry: patient, CatchUp: all}, job.Succeeded)
	add(job.Job{Name: "late", Retry: patient}, job.Succeeded, job.Missed)
	add(job.Job{Name: "never", Retry: patient, CatchUp: job.CatchUp{Policy: job.CatchUpNone}}, job.Succeeded, job.Missed)
	s.h.Cases = append(s.h.Cases, plan.Case{Job: job.Job{Name: "asked", Retry: patient}, Triggered: true, Outcomes: []job.State{job.Succeeded}})
	s.h.Lease, s.h.From, s.h.Until = storyLease, storyBegan, at(20)
	s.h.Skew = time.Millisecond
	s.h.Deaths, s.h.Records, s.h.Publishers = map[string]time.Duration{}, map[job.Slot]LedgerWrite{}, map[string]bool{}
	s.h.Broker.Add(storyBoot, storyBoot, storyBegan)
	for i := range 400 { // the servers have something to store all the time
		s.beat("w", -60+0.2*float64(i))
	}
	s.beat("x", -1)
	s.beat("y", -1)
	s.beat("z", -1)
	return s
}

func slotOf(name string, second int) job.Slot {
	return job.NewSlot(name, storyBegan.Add(time.Duration(second)*time.Second))
}

func (s *story) next(key string) (seq, last uint64) {
	s.seq++
	last = s.last[key]
	s.last[key] = s.seq
	return s.seq, last
}

func (s *story) beat(node string, when float64) { s.node(node, exchange.NodeAlive, when) }

func (s *story) node(name string, state exchange.NodeState, when float64) {
	seq, last := s.next("node " + name)
	s.h.Nodes = append(s.h.Nodes, NodeWrite{Seq: seq, Last: last, Time: at(when), Node: exchange.Node{Name: name, State: state}})
}

func (s *story) publish(slot job.Slot, when float64) {
	s.seq++
	s.h.Slots = append(s.h.Slots, SlotWrite{Seq: s.seq, Time: at(when), Message: core.Message{Slot: slot}, ID: slot.ID()})
}

// misses stores a range of missed slots with one slot.
func (s *story) misses(slot job.Slot, when float64) {
	r := job.Slot{Job: slot.Job, At: slot.At, Range: true}
	s.publish(r, when)
	w := &s.h.Slots[len(s.h.Slots)-1]
	w.Message.Missed, w.Message.MissedLast, w.ID = 1, slot.At, r.ID()+"/"+slot.At.Format(time.RFC3339)
	s.write(job.Record{Slot: r, State: job.Missed, Node: "x", Published: at(when), Count: 1, Last: slot.At}, when+0.1)
}

// write stores a record and returns its revision.
func (s *story) write(r job.Record, when float64) uint64 {
	seq, last := s.next(r.Slot.ID())
	w := LedgerWrite{Seq: seq, Last: last, Time: at(when), Record: r, Slot: r.Slot}
	s.h.Ledger = append(s.h.Ledger, w)
	s.h.Records[r.Slot] = w
	return seq
}

// claim stores a claim. Its record has the earlier attempts.
func (s *story) claim(slot job.Slot, node string, when float64) (fence uint64) {
	before := s.h.Records[slot]
	r := before.Record
	r.Attempts = slices.Clone(r.Attempts)
	if n := len(r.Attempts); r.State == job.Running && r.Attempts[n-1].Error == "" {
		r.Attempts[n-1].Error, r.Attempts[n-1].Fence = "worker "+r.Node+" died", before.Seq
	}
	r.Slot, r.State, r.Node, r.Attempt = slot, job.Running, node, r.Attempt+1
	r.Attempts = append(r.Attempts, job.Attempt{Number: r.Attempt, Node: node, Started: at(when)})
	return s.write(r, when)
}

// end records how the current attempt ended.
func (s *story) end(slot job.Slot, state job.State, err string, when float64) {
	w := s.h.Records[slot]
	r := w.Record
	r.State, r.Error, r.Attempts = state, err, slices.Clone(r.Attempts)
	if n := len(r.Attempts); n > 0 {
		r.Attempts[n-1].Fence, r.Attempts[n-1].Finished, r.Attempts[n-1].Error = w.Seq, at(when), err
	}
	if state == job.Retrying {
		r.RetryAt = at(when)
	}
	s.write(r, when)
}

// starts adds a slot that is published at from and starts on a node.
func (s *story) starts(slot job.Slot, node string, from float64) {
	s.publish(slot, from)
	s.claim(slot, node, from+0.01)
	s.line(LineStart, slot, from+0.02)
}

// succeeds ends the current attempt of a slot with success.
func (s *story) succeeds(slot job.Slot, when float64) {
	s.line(LineEnd, slot, when, plan.ResultOK)
	s.end(slot, job.Succeeded, "", when+0.1)
}

// takesOver lets y run a slot whose owner was fenced at 4.
func (s *story) takesOver(slot job.Slot, ended float64) {
	s.claim(slot, "y", 4.1)
	s.line(LineStart, slot, 4.11)
	s.succeeds(slot, ended)
}

// line adds a line of the current attempt.
func (s *story) line(what string, slot job.Slot, when float64, words ...string) {
	w := s.h.Records[slot]
	l := Line{
		What: what, Process: w.Record.Node + ".1", Boot: storyBoot + seconds(when), Slot: slot.ID(),
		Attempt: w.Record.Attempt, Fence: w.Seq, Node: w.Record.Node,
	}
	if len(words) > 0 {
		l.Result = words[0]
	}
	if what == LineCancel {
		l.Result, l.Cause = "", "lease lost"
	}
	s.h.Lines = append(s.h.Lines, l)
}

// again repeats line i at a later time, with another kind and result. So a process that wakes can
// write lines of an attempt that is not the current one any more.
func (s *story) again(i int, what, result string, when float64) {
	l := s.h.Lines[i]
	l.What, l.Result, l.Boot = what, result, storyBoot+seconds(when)
	if what == LineCancel {
		l.Cause = "lease lost"
	}
	s.h.Lines = append(s.h.Lines, l)
}

func (s *story) pause(process string, from, to float64) {
	s.h.Lines = append(s.h.Lines, Line{What: LinePause, Process: process, From: storyBoot + seconds(from), Boot: storyBoot + seconds(to)})
}

// fault adds a line of the torture about a fault.
func (s *story) fault(kind plan.Kind, of string, from, to float64, delay time.Duration) {
	s.h.Lines = append(s.h.Lines, Line{What: LineFault, Process: TortureProcess, Kind: kind, Of: of, From: storyBoot + seconds(from), Boot: storyBoot + seconds(to), Delay: delay})
}

// producer adds a process that publishes. It is up from since on.
func (s *story) producer(life string, since float64) {
	s.h.Publishers[hostOf(life)] = true
	s.h.Lines = append(s.h.Lines, Line{What: LineUp, Process: life, Boot: storyBoot + seconds(since)})
}

// fenced adds a slot whose owner x is fenced at 4, and killed at died, just after the torture
// continued it. x records nothing about that.
func (s *story) fenced(died float64) {
	s.starts(a0, "x", 0)
	s.node("x", exchange.NodeFenced, 4)
	s.claim(a0, "y", died+0.1)
	s.line(LineStart, a0, died+0.11)
	s.line(LineEnd, a0, died+1, plan.ResultOK)
	s.end(a0, job.Succeeded, "", died+1.1)
	s.h.Deaths["x.1"] = storyBoot + seconds(died)
}

// disowned adds a slot whose owner x lost its lease, which ended its handler's context. But its
// heartbeat was stored at 2.4. y takes the slot over.
func (s *story) disowned(ended float64) {
	s.publish(a0, 0)
	fence := s.claim(a0, "x", 0.01)
	s.line(LineStart, a0, 0.02)
	s.again(len(s.h.Lines)-1, LineCancel, "", ended)
	s.again(len(s.h.Lines)-2, LineEnd, plan.ResultError, ended+0.01)
	s.beat("x", 2.4)
	s.takeOver(fence)
}

// takeOver lets y take a slot of x over at 2.5, because x has answered that it does not hold its claim.
func (s *story) takeOver(fence uint64) {
	r := s.h.Records[a0].Record
	r.Attempts = []job.Attempt{{Number: 1, Node: "x", Fence: fence, Started: at(0.01), Error: "worker x does not hold its claim"}, {Number: 2, Node: "y", Started: at(2.5)}}
	r.Node, r.Attempt = "y", 2
	s.write(r, 2.5)
	s.line(LineStart, a0, 2.51)
	s.succeeds(a0, 3)
}

// wokeLate adds a slot whose owner x has its last heartbeat at 0, freezes, and wakes when its handler
// returns. y takes the slot over.
func (s *story) wokeLate(returned float64) {
	s.beat("x", 0)
	s.publish(a0, 0)
	fence := s.claim(a0, "x", 0.01)
	s.line(LineStart, a0, 0.02)
	s.again(len(s.h.Lines)-1, LineEnd, plan.ResultOK, returned)
	s.pause("x.1", 1, returned)
	s.takeOver(fence)
}

// late adds a slot whose owner x has its last heartbeat at 0, and whose context ends too late: the
// lease is 3 s.
func (s *story) late(when float64) {
	s.beat("x", 0)
	s.starts(a0, "x", 0)
	s.again(len(s.h.Lines)-1, LineCancel, "", when)
	s.again(len(s.h.Lines)-2, LineEnd, plan.ResultError, when+0.01)
	s.node("x", exchange.NodeFenced, 4)
	s.takesOver(a0, 5)
}

// lagging adds a producer w1 whose answers come late from 0 on, and whose node is fenced at 8.
func (s *story) lagging(delay time.Duration) {
	s.fault(plan.Lag, "w1.1", 0, 12, delay)
	s.beat("w1-42-7", 4.5)
	s.node("w1-42-7", exchange.NodeFenced, 8)
}

// held adds a heartbeat of a process that the servers answered late.
func (s *story) held(of string, from, to float64) {
	s.h.Lines = append(s.h.Lines, Line{What: LineHeld, Process: TortureProcess, Of: of, From: storyBoot + seconds(from), Boot: storyBoot + seconds(to)})
}

// waits adds a write of the lock of the job newer, in which slots wait that were published in time.
func (s *story) waits(slots ...job.Slot) {
	s.lock("newer", 10, nil, slots)
	w := &s.h.Locks[len(s.h.Locks)-1]
	for i := range w.Lock.Waiting {
		w.Lock.Waiting[i].OnTime = true
	}
}

func (s *story) ack(slot job.Slot, when float64) {
	for _, m := range s.h.Slots {
		if m.Message.Slot == slot {
			s.h.Acks = append(s.h.Acks, Ack{m.Seq, storyBoot + seconds(when)})
		}
	}
}

func (s *story) watermark(to, when float64) {
	s.seq++
	s.h.Marks = append(s.h.Marks, MarkWrite{Seq: s.seq, Time: at(when), Mark: exchange.Watermark{Time: at(to), Revision: 9}})
}

func (s *story) lock(name string, when float64, holders, waiting []job.Slot) {
	seq, last := s.next("lock " + name)
	list := func(slots []job.Slot) (all []core.LockSlot) {
		for _, slot := range slots {
			all = append(all, core.LockSlot{Slot: slot, At: slot.At})
		}
		return all
	}
	s.h.Locks = append(s.h.Locks, LockWrite{Seq: seq, Last: last, Time: at(when), Lock: core.Lock{Job: name, Holders: list(holders), Waiting: list(waiting)}})
}

// runs adds a slot that z claims, runs and completes in the usual way. It is published at from.
func (s *story) runs(slot job.Slot, from float64) {
	s.publish(slot, from)
	s.claim(slot, "z", from+0.01)
	s.line(LineStart, slot, from+0.02)
	s.line(LineEnd, slot, from+0.5, plan.ResultOK)
	s.end(slot, job.Succeeded, "", from+0.51)
	s.ack(slot, from+0.52)
}

// splits adds a job with a slot at 0 that is split in two, and runs it.
func (s *story) splits() {
	k := plan.Case{Job: job.Job{Name: "split", Shards: 2, Overlap: job.OverlapAllow, CatchUp: job.CatchUp{Policy: job.CatchUpAll}}, Every: 20 * time.Second, Outcomes: []job.State{job.Succeeded}}
	s.h.Cases = append(s.h.Cases, k)
	whole := slotOf("split", 0)
	r := job.Record{Slot: whole, State: job.Running, Shards: 2, Node: "z"}
	s.write(r, 0.005)
	s.runs(whole.WithShard(1, 2), 0.01)
	s.runs(whole.WithShard(2, 2), 0.02)
	r.State = job.Succeeded
	s.write(r, 1)
}

// rest runs every slot that has no message yet.
func (s *story) rest() History {
	began := map[job.Slot]bool{}
	for _, w := range s.h.Slots {
		slot := w.Message.Slot
		slot.Range = false
		began[slot] = true
	}
	for _, k := range s.h.Cases {
		for _, slot := range k.Slots(s.h.From, s.h.Until) {
			if !began[slot] && k.Job.Shards == 0 {
				s.runs(slot, slot.At.Sub(storyBegan).Seconds()+0.001)
			}
		}
	}
	return s.h
}
