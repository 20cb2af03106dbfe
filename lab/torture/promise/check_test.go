package promise

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cronce-io/cronce/internal/core"
	"github.com/cronce-io/cronce/internal/core/exchange"
	"github.com/cronce-io/cronce/job"
	"github.com/cronce-io/cronce/lab/torture/plan"
)

var a0 = slotOf("a", 0)

// taken adds a slot whose first owner x is frozen in the middle of a run and fenced. y takes the
// slot over. x wakes at woke.
func (s *story) taken(slot job.Slot, woke float64) {
	s.starts(slot, "x", 0)
	i := len(s.h.Lines) - 1
	s.node("x", exchange.NodeFenced, 4)
	s.takesOver(slot, 9)
	s.ack(slot, 9.2)
	s.pause("x.1", 0.5, woke)
	s.again(i, LineCancel, "", woke+0.05)
	s.again(i, LineEnd, plan.ResultError, woke+0.06)
}

func TestHistoriesThatKeepThePromise(t *testing.T) {
	t.Parallel()
	for name, tell := range map[string]func(*story){
		"the usual way": func(*story) {},
		"a frozen owner notices the end of its lease when it wakes": func(s *story) { s.taken(a0, 6) },
		"an owner is killed in the middle": func(s *story) {
			s.starts(a0, "x", 0)
			s.h.Deaths["x.1"] = storyBoot + seconds(1)
			s.node("x", exchange.NodeFenced, 4)
			s.takesOver(a0, 5)
		},
		"published a moment after the minute, by a producer that had not judged it late": func(s *story) {
			quick := slotOf("quick", 0)
			s.publish(quick, 60.05)
			s.write(job.Record{Slot: quick, State: job.Expired, Node: "x", Published: at(60.05)}, 60.1)
		},
		"a slot runs in its shards": func(s *story) { s.splits() },
		"a slot is in a range":      func(s *story) { s.misses(slotOf("late", 0), 70) },
		"a slot ran, and is in a range of a producer that did not know it": func(s *story) {
			s.runs(slotOf("late", 0), 0)
			s.misses(slotOf("late", 0), 70)
		},
		"an attempt fails and is retried": func(s *story) {
			s.starts(a0, "x", 0)
			s.line(LineEnd, a0, 0.1, plan.ResultError)
			s.end(a0, job.Retrying, "failed", 0.11)
			s.claim(a0, "y", 0.3)
			s.line(LineStart, a0, 0.31)
			s.line(LineEnd, a0, 0.4, plan.ResultOK)
			s.end(a0, job.Succeeded, "", 0.41)
			s.ack(a0, 0.42)
		},
		"a handler that may finish runs beside the next": func(s *story) {
			f := slotOf("finish", 0)
			s.starts(f, "x", 0)
			i := len(s.h.Lines) - 1
			s.node("x", exchange.NodeFenced, 4)
			s.claim(f, "y", 4.1)
			s.line(LineStart, f, 4.11)
			s.again(i, LineEnd, plan.ResultOK, 5)
			s.succeeds(f, 9)
		},
		"frozen between the claim and the start": func(s *story) {
			s.publish(a0, 0)
			s.claim(a0, "x", 0.01)
			s.line(LineStart, a0, 6.1)
			i := len(s.h.Lines) - 1
			s.node("x", exchange.NodeFenced, 4)
			s.takesOver(a0, 5)
			s.pause("x.1", 0.015, 6.05)
			s.again(i, LineCancel, "", 6.15)
			s.again(i, LineEnd, plan.ResultError, 6.16)
		},
		"taken over from a node that had lost its lease and answered for it": func(s *story) { s.disowned(2.31) },
		"taken over from a node that woke without its lease and answered":    func(s *story) { s.wokeLate(2.3) },
		"a slot is left out for one that runs": func(s *story) {
			first, second := slotOf("skip", 0), slotOf("skip", 10)
			s.starts(first, "x", 0)
			s.publish(second, 10)
			s.write(job.Record{Slot: second, State: job.Skipped, Node: "y", Error: "slot " + first.ID() + " was in its way (overlap: skip)"}, 10.1)
			s.succeeds(first, 11)
		},
		"answers that come later than a third of the lease": func(s *story) { s.lagging(2 * time.Second) },
		"a heartbeat that the servers hold up, so that its answer comes later than a third of the lease": func(s *story) {
			s.lagging(800 * time.Millisecond)
			s.held("w1.1", 5.4, 5.95)
		},
		"slow answers, and servers that store nothing for a while": func(s *story) {
			s.h.Nodes = slices.DeleteFunc(s.h.Nodes, func(w NodeWrite) bool { return w.Time.After(at(5)) && w.Time.Before(at(6)) })
			s.lagging(time.Second)
		},
		"slow answers, and servers that are killed": func(s *story) {
			s.fault(plan.Broker, "", 5, 7, 0)
			s.lagging(time.Second)
		},
		"a lease that was lost before the answers came late": func(s *story) {
			s.fault(plan.Cut, "w1.1", 0, 3, 0)
			s.fault(plan.Lag, "w1.1", 3.5, 12, time.Second)
			s.beat("w1-42-7", 0)
			s.node("w1-42-7", exchange.NodeFenced, 8)
		},
		"a lease that was lost when the answers had just begun to come late": func(s *story) {
			s.fault(plan.Lag, "x.1", 1, 6, time.Second)
			s.late(2.5)
		},
		"a context ends late in a process that was starved": func(s *story) {
			s.late(3.9)
			s.pause("x.1", 2, 3.85)
		},
		"published late by a producer that had only just begun": func(s *story) {
			s.producer("p1.1", -2)
			s.runs(a0, 7)
		},
		"published late since the stream was full": func(s *story) {
			s.producer("p1.1", -60)
			s.fault(plan.Full, "", -1, 6, 0)
			s.runs(a0, 7)
		},
		"published late by a producer that the servers held up": func(s *story) {
			s.producer("p1.1", -60)
			s.held("p1.1", 1, 5.5)
			s.runs(a0, 7)
		},
		"writes that were not republished": func(s *story) {
			s.runs(a0, 0)
			s.h.Ledger = nil
		},
		"a trigger that was answered": func(s *story) {
			asked := job.Slot{Job: "asked", Token: "key-1"}
			s.runs(asked, 5)
			s.h.Lines = append(s.h.Lines, Line{What: LineOrder, Slot: asked.ID()})
		},
		"published so late that the policy leaves it out": func(s *story) {
			late := slotOf("late", 0)
			s.publish(late, 70)
			s.write(job.Record{Slot: late, State: job.Missed, Node: "x"}, 70.1)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStory()
			tell(s)
			violations, _ := Check(s.rest())
			for _, v := range violations {
				t.Errorf("%s %s: %s\n\t%s", v.Rule, v.Slot, v.Detail, strings.Join(v.Evidence, "\n\t"))
			}
		})
	}
}

// A process that is killed as soon as it wakes records nothing. Whether it could have acted follows
// from what the torture did to it, and from when the torture itself did not run.
func TestAProcessThatIsKilledOutlivesItsLeaseUnlessItWasStarved(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		seen     func(*story)
		outlived bool
	}{
		"nothing was starved":                       {func(*story) {}, true},
		"the torture had it stopped":                {func(s *story) { s.fault(plan.Sleep, "x.1", 0.5, 5.9, 0) }, false},
		"the torture had it stopped, for less long": {func(s *story) { s.fault(plan.Sleep, "x.1", 0.5, 5, 0) }, true},
		"the torture had another one stopped":       {func(s *story) { s.fault(plan.Sleep, "y.1", 0.5, 5.9, 0) }, true},
		"the torture was starved itself":            {func(s *story) { s.pause(TortureProcess, 0.5, 5.9) }, false},
		"another process was starved":               {func(s *story) { s.pause("y.1", 0.5, 5.9) }, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStory()
			c.seen(s)
			s.fenced(6)
			violations, _ := Check(s.rest())
			outlived := slices.ContainsFunc(violations, func(v Violation) bool { return v.Rule == "outlived the lease" })
			if outlived != c.outlived || !c.outlived && len(violations) > 0 {
				t.Errorf("it outlived its lease: %v, want %v: %+v", outlived, c.outlived, violations)
			}
		})
	}
}

// broken is a way to break the promise, and the rule that Check must name.
type broken struct {
	rule string
	tell func(*story)
}

func TestEveryBrokenPromiseIsNoticed(t *testing.T) {
	t.Parallel()
	rules := map[string]bool{}
	for name, b := range map[string]broken{
		"a slot is lost": {"missing", func(s *story) { s.publish(a0, 0) }},
		"a slot has no end": {"unfinished", func(s *story) {
			s.publish(a0, 0)
			s.claim(a0, "x", 0.01)
		}},
		"a slot fails that must not": {"outcome", func(s *story) {
			s.starts(a0, "x", 0)
			s.line(LineEnd, a0, 0.1, plan.ResultError)
			s.end(a0, job.Failed, "failed", 0.2)
		}},
		"success without a run": {"success without a run", func(s *story) {
			s.publish(a0, 0)
			s.claim(a0, "x", 0.01)
			s.end(a0, job.Succeeded, "", 0.2)
		}},
		"success of a handler that failed": {"success without a run", func(s *story) {
			s.starts(a0, "x", 0)
			s.line(LineEnd, a0, 0.1, plan.ResultError)
			s.end(a0, job.Succeeded, "", 0.2)
		}},
		"a run after success": {"ran after success", func(s *story) {
			s.runs(a0, 0)
			s.h.Lines = append(s.h.Lines, Line{What: LineStart, Process: "y.1", Slot: a0.ID(), Attempt: 2, Fence: 999, Node: "y", Boot: storyBoot + seconds(3)})
		}},
		"two successes": {"two successes", func(s *story) {
			s.runs(a0, 0)
			s.claim(a0, "y", 3)
			s.line(LineStart, a0, 3.1)
			s.succeeds(a0, 3.2)
		}},
		"a whole succeeds before its shards": {"whole", func(s *story) {
			s.splits()
			shard := slotOf("split", 0).WithShard(2, 2)
			w := s.h.Records[shard]
			w.Record.State = job.Failed
			s.h.Records[shard] = w
		}},
		"a slot that no plan has": {"unexpected", func(s *story) { s.runs(slotOf("a", 5), 5) }},
		"an outcome is overwritten": {"ledger", func(s *story) {
			s.runs(a0, 0)
			s.end(a0, job.Succeeded, "", 3)
		}},
		"a zombie completes over the new owner": {"ledger", func(s *story) {
			s.taken(a0, 20)
			s.h.Ledger = s.h.Ledger[:len(s.h.Ledger)-1]
			r := s.h.Ledger[len(s.h.Ledger)-1]
			s.last[a0.ID()] = r.Seq
			zombie := r.Record
			zombie.Node, zombie.Attempt, zombie.State = "x", 1, job.Succeeded
			s.write(zombie, 5)
		}},
		"a takeover without a fence": {"ledger", func(s *story) {
			s.taken(a0, 20)
			s.h.Nodes = s.h.Nodes[:len(s.h.Nodes)-1]
		}},
		"a takeover before the fence": {"ledger", func(s *story) {
			s.taken(a0, 20)
			s.h.Nodes[len(s.h.Nodes)-1].Time = at(4.2)
		}},
		"a record is deleted": {"ledger", func(s *story) {
			s.runs(a0, 0)
			s.h.Ledger[len(s.h.Ledger)-1].Gone = true
		}},
		"success without a claim": {"ledger", func(s *story) {
			s.publish(a0, 0)
			s.end(a0, job.Retrying, "", 0)
		}},
		"an attempt is skipped": {"ledger", func(s *story) {
			s.publish(a0, 0)
			s.write(job.Record{Slot: a0, State: job.Running, Node: "x", Attempt: 2}, 0.1)
		}},
		"a start without a claim": {"start without a claim", func(s *story) {
			s.runs(a0, 0)
			s.h.Lines[0].Fence, s.h.Lines[1].Fence = 0, 0
		}},
		"a start at another node's claim": {"start without a claim", func(s *story) {
			s.taken(a0, 20)
			s.h.Lines = append(s.h.Lines, Line{What: LineStart, Process: "z.1", Slot: a0.ID(), Attempt: 1, Fence: s.h.Ledger[0].Seq, Node: "z", Boot: storyBoot + seconds(0.3)})
		}},
		"a start before the claim is stored": {"start before the claim", func(s *story) {
			s.runs(a0, 0)
			s.h.Lines[0].Boot = storyBoot + seconds(0.001)
		}},
		"one claim starts two handlers": {"one fence, two starts", func(s *story) {
			s.runs(a0, 0)
			l := s.h.Lines[0]
			l.Process, l.Boot = "x.2", l.Boot+time.Second
			s.h.Lines = append(s.h.Lines, l)
		}},
		"one claim starts a handler twice": {"started twice", func(s *story) {
			s.runs(a0, 0)
			s.again(0, LineStart, "", 3)
		}},
		"fences go back": {"fence", func(s *story) {
			s.taken(a0, 20)
			s.h.Lines[1].Fence, s.h.Lines[2].Fence = 1, 1
		}},
		"an end without a start": {"record", func(s *story) {
			s.runs(a0, 0)
			s.h.Lines = s.h.Lines[1:]
		}},
		"a second attempt of a job with one": {"too many attempts", func(s *story) {
			once := slotOf("once", 0)
			s.taken(once, 20)
		}},
		"two at once": {"two at once", func(s *story) {
			s.taken(a0, 6)
			s.h.Lines = s.h.Lines[:3] // without the pause and the end of the context
			s.again(0, LineEnd, plan.ResultOK, 6)
		}},
		"a frozen owner goes on for long after it wakes": {"two at once", func(s *story) {
			s.taken(a0, 6)
			n := len(s.h.Lines)
			s.h.Lines[n-2].Boot += 2 * time.Second
			s.h.Lines[n-1].Boot += 2 * time.Second
		}},
		"a handler outlives the lease": {"outlived the lease", func(s *story) {
			s.taken(a0, 6)
			s.h.Lines = s.h.Lines[:3]
			s.again(0, LineCancel, "", 4.05)
		}},
		"a dead node starts something": {"started after death", func(s *story) {
			s.publish(a0, 0)
			s.node("x", exchange.NodeFenced, 4)
			s.claim(a0, "x", 5)
			s.line(LineStart, a0, 5.1)
			s.succeeds(a0, 5.2)
		}},
		"nodes start what they claimed before they slept, once and again": {"started after death", func(s *story) {
			for _, slot := range []job.Slot{a0, slotOf("finish", 0)} {
				s.publish(slot, 0)
				s.claim(slot, "x", 0.01)
				s.line(LineStart, slot, 6.1)
				s.again(len(s.h.Lines)-1, LineCancel, "", 6.15)
			}
			s.node("x", exchange.NodeFenced, 4)
			s.pause("x.1", 0.015, 6.05)
		}},
		"a dead node comes back": {"back from death", func(s *story) {
			s.node("x", exchange.NodeFenced, 4)
			s.beat("x", 5)
		}},
		"a living node is fenced": {"fenced alive", func(s *story) {
			s.beat("x", 3)
			s.node("x", exchange.NodeFenced, 4)
		}},
		"after a permanent error": {"after a permanent error", func(s *story) {
			s.starts(a0, "x", 0)
			s.line(LineEnd, a0, 0.1, plan.ResultPermanent)
			s.end(a0, job.Retrying, "failed", 0.11)
			s.claim(a0, "y", 0.3)
			s.line(LineStart, a0, 0.31)
		}},
		"slow answers lose a lease": {"slowness", func(s *story) { s.lagging(time.Second) }},
		"slow answers lose a lease, and the servers answer the heartbeat almost in time": {"slowness", func(s *story) {
			s.lagging(600 * time.Millisecond)
			s.held("w1.1", 5.4, 5.75)
		}},
		"slow answers lose a lease, and the servers hold up another process": {"slowness", func(s *story) {
			s.lagging(800 * time.Millisecond)
			s.held("w2.1", 5.4, 5.95)
		}},
		"slow answers lose a lease, and the servers held up an earlier heartbeat": {"slowness", func(s *story) {
			s.lagging(800 * time.Millisecond)
			s.held("w1.1", 1, 2)
		}},
		"slow answers end a handler": {"slowness", func(s *story) {
			s.fault(plan.Lag, "x.1", -4, 6, time.Second)
			s.late(2.5)
		}},
		"a context ends with its lease":               {"no margin", func(s *story) { s.late(2.9) }},
		"a slot waits although a producer is healthy": {"published late", func(s *story) { s.producer("p1.1", -60); s.runs(a0, 7) }},
		"a slot waits although the servers held up a healthy producer only for a moment": {"published late", func(s *story) {
			s.producer("p1.1", -60)
			s.held("p1.1", 1, 3.4)
			s.runs(a0, 7)
		}},
		"a slot waits although the servers held up another producer, and this one before": {"published late", func(s *story) {
			s.producer("p1.1", -60)
			s.held("p2.1", 1, 5.5)
			s.held("p1.1", -5, -0.1)
			s.runs(a0, 7)
		}},
		"two wait where only the newest may": {"not only the newest", func(s *story) { s.waits(slotOf("newer", 0), slotOf("newer", 10)) }},
		"a slot that waits for its retry gives its place away": {"place", func(s *story) {
			first, second := slotOf("skip", 0), slotOf("skip", 10)
			s.starts(first, "x", 0)
			s.line(LineEnd, first, 0.1, plan.ResultError)
			s.end(first, job.Retrying, "failed", 0.11)
			s.runs(second, 10)
			s.claim(first, "x", 11)
			s.line(LineStart, first, 11.1)
			s.succeeds(first, 11.2)
		}},
		"slots under replace wait for each other": {"never replaced", func(s *story) {
			for i := range 4 {
				slot := slotOf("newer", 10*i)
				s.publish(slot, float64(10*i))
				s.claim(slot, "x", float64(13*i)+1)
				s.line(LineStart, slot, float64(13*i)+1)
				s.line(LineEnd, slot, float64(13*i)+13.5, plan.ResultOK)
				s.end(slot, job.Succeeded, "", float64(13*i)+13.6)
			}
		}},
		"a late slot of a job that catches nothing up": {"caught up", func(s *story) {
			never := slotOf("never", 0)
			s.runs(never, 70)
			s.h.Slots[len(s.h.Slots)-1].Message.CaughtUp = true
		}},
		"a whole has its outcome before its last shard": {"whole", func(s *story) {
			s.splits()
			whole, n := slotOf("split", 0), len(s.h.Ledger)
			early := &s.h.Ledger[n-1]
			early.Seq, s.h.Ledger[n-2].Seq = s.h.Ledger[n-2].Seq, early.Seq
			s.h.Records[whole] = *early
		}},
		"too early": {"early", func(s *story) { s.runs(a0, -2) }},
		"a retry too early": {"retry too early", func(s *story) {
			s.starts(a0, "x", 0)
			s.line(LineEnd, a0, 0.1, plan.ResultError)
			s.end(a0, job.Retrying, "failed", 3)
			s.h.Ledger[len(s.h.Ledger)-1].Time = at(0.11)
			s.claim(a0, "y", 0.3)
			s.line(LineStart, a0, 0.31)
		}},
		"two slots of a job that takes one at a time": {"overlap", func(s *story) {
			first, second := slotOf("skip", 0), slotOf("skip", 10)
			s.starts(first, "x", 0)
			s.runs(second, 10)
			s.succeeds(first, 12)
		}},
		"a lock is deleted": {"lock", func(s *story) {
			s.h.Locks = append(s.h.Locks, LockWrite{Seq: 900, Gone: true})
		}},
		"a newer slot goes before an older one": {"out of order", func(s *story) {
			first, second := slotOf("line", 0), slotOf("line", 10)
			s.lock("line", 10.001, nil, []job.Slot{first})
			s.lock("line", 10.002, []job.Slot{second}, []job.Slot{first})
		}},
		"a skipped slot does not say why": {"explanation", func(s *story) {
			s.publish(slotOf("skip", 10), 10)
			s.write(job.Record{Slot: slotOf("skip", 10), State: job.Skipped, Node: "y", Error: "no idea"}, 10.1)
		}},
		"a slot is skipped for one that had ended": {"explanation", func(s *story) {
			first, second := slotOf("skip", 0), slotOf("skip", 10)
			s.runs(first, 0)
			s.publish(second, 10)
			s.write(job.Record{Slot: second, State: job.Skipped, Node: "y", Error: "slot " + first.ID() + " was in its way (overlap: skip)"}, 10.1)
		}},
		"a slot is cancelled for an older one": {"explanation", func(s *story) {
			first, second := slotOf("newer", 0), slotOf("newer", 10)
			s.runs(first, 0)
			s.publish(second, 10)
			s.write(job.Record{Slot: second, State: job.Cancelled, Node: "y", Error: core.ReplacedBy(first).Error()}, 10.1)
		}},
		"missed although published in time": {"missed", func(s *story) {
			late := slotOf("late", 0)
			s.publish(late, 1)
			s.write(job.Record{Slot: late, State: job.Missed, Node: "x"}, 1.1)
		}},
		"expired before its deadline": {"expired", func(s *story) {
			quick := slotOf("quick", 0)
			s.publish(quick, 0)
			s.write(job.Record{Slot: quick, State: job.Expired, Node: "x"}, 1)
		}},
		"claimed past its deadline": {"past its deadline", func(s *story) {
			quick := slotOf("quick", 0)
			s.publish(quick, 0)
			s.claim(quick, "x", 5)
			s.line(LineStart, quick, 5.1)
			s.succeeds(quick, 5.2)
		}},
		"past its timeout": {"past its timeout", func(s *story) {
			quick := slotOf("quick", 0)
			s.publish(quick, 0)
			s.claim(quick, "x", 0.1)
			s.line(LineStart, quick, 0.2)
			s.succeeds(quick, 3)
		}},
		"taken over from a node that answered wrongly":  {"ledger", func(s *story) { s.disowned(2.7) }},
		"taken over from a node that forgot an outcome": {"ledger", func(s *story) { s.wokeLate(1.8) }},
		"published under another ID": {"message ID", func(s *story) {
			s.runs(a0, 0)
			s.publish(a0, 0.1)
			s.h.Slots[len(s.h.Slots)-1].ID = "a-once-more"
		}},
		"a range under the ID of its first slot": {"message ID", func(s *story) {
			s.misses(slotOf("late", 0), 70)
			s.h.Slots[len(s.h.Slots)-1].ID = slotOf("late", 0).ID()
		}},
		"a range of no slot":               {"unexpected", func(s *story) { s.misses(slotOf("late", 5), 70) }},
		"a range that must not be":         {"outcome", func(s *story) { s.misses(a0, 70) }},
		"a range although all was in time": {"missed", func(s *story) { s.misses(slotOf("late", 0), 1) }},
		"offered again as soon as it is due": {"offered too soon", func(s *story) {
			s.runs(a0, 0)
			s.publish(a0, 0.1)
			s.h.Slots[len(s.h.Slots)-1].ID += "/r2"
		}},
		"the watermark goes back": {"watermark", func(s *story) {
			s.watermark(-1, -1)
			s.watermark(-5, 0)
		}},
		"the watermark passes what is not stored": {"watermark before publish", func(s *story) {
			s.watermark(0, 0.5)
			s.runs(a0, 1)
		}},
		"an ack before the outcome": {"acked too early", func(s *story) {
			s.runs(a0, 0)
			s.h.Acks[0].Boot = storyBoot + seconds(0.3)
		}},
		"an ack without an outcome": {"acked too early", func(s *story) {
			s.publish(a0, 0)
			s.claim(a0, "x", 0.1)
			s.ack(a0, 0.3)
		}},
		"a trigger is lost": {"missing", func(s *story) {
			s.h.Lines = append(s.h.Lines, Line{What: LineOrder, Slot: "asked:@key-1"})
		}},
	} {
		rules[b.rule] = true
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStory()
			b.tell(s)
			violations, _ := Check(s.rest())
			for _, v := range violations {
				if v.Rule == b.rule && v.Detail != "" {
					return
				}
			}
			t.Errorf("want a violation of %q, got %+v", b.rule, violations)
		})
	}
	for _, rule := range rulesOf(t, "*.go") {
		if !rules[rule] {
			t.Errorf("no history here breaks the rule %q", rule)
		}
	}
}
