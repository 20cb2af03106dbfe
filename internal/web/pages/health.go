package pages

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"sync"
	"time"

	"github.com/cronce-io/cronce/client"
	"github.com/cronce-io/cronce/internal/api/fault"
	"github.com/cronce-io/cronce/internal/codec"
	"github.com/cronce-io/cronce/internal/web/pages/board"
	"github.com/cronce-io/cronce/internal/web/pages/shell"
	"github.com/cronce-io/cronce/job"
)

const (
	// checkWait is how long the page waits for a check. After that, it shows the progress of the
	// check.
	checkWait = 800 * time.Millisecond

	// maxFound bounds the problems of a check that are shown.
	maxFound = 200

	// repairTime bounds a repair, and repairWait how long the browser waits for it.
	repairTime = 10 * time.Minute
	repairWait = 5 * time.Second
)

// checkKey names a verification: the range, and the job or "" for all jobs. A zero time selects the
// default of client.Verify.
type checkKey struct {
	From, To time.Time
	Job      string
}

func (k checkKey) options() client.VerifyOptions {
	o := client.VerifyOptions{From: k.From, To: k.To}
	if k.Job != "" {
		o.Jobs = []string{k.Job}
	}
	return o
}

func (k checkKey) query() string {
	q := url.Values{"verify": {"1"}}
	for name, t := range map[string]time.Time{"from": k.From, "to": k.To} {
		if !t.IsZero() {
			q.Set(name, t.UTC().Format(time.RFC3339))
		}
	}
	if k.Job != "" {
		q.Set("job", k.Job)
	}
	return q.Encode()
}

// checked is what a verification has found.
type checked struct {
	Sum        client.Verification
	Found      []client.SlotProblem // the first maxFound
	Repairable int                  // how many slots a repair would offer again
	Unreadable []string
}

// healthView is what the page shows.
type healthView struct {
	Verdict board.Result[verdict]
	Asked   bool // a range is verified
	Check   board.Result[checked]
	Read    int // how many values the check has read so far
	Repair  *repair
	Query   string
}

// work has the progress of the checks that run, and the newest repairs. It is safe for concurrent
// use.
type work struct {
	mu      sync.Mutex
	read    map[checkKey]int
	repairs map[checkKey]*repair
}

// repair is a repair that runs, or has ended. It counts the slots that were offered again, that
// another program had just offered, and that cannot be repaired.
type repair struct {
	Running                bool
	Ended                  time.Time
	Offered, Already, Left int
	Err                    string
}

func (s *Site) health() shell.Page {
	return shell.Page{
		Path: "/health", Nav: "health", File: "health.html",
		Show: func(r *shell.Request) (any, error) {
			v := healthView{Asked: r.Form.One("verify", "", "1") == "1"}
			key := readCheck(r)
			// What follows is computed in the background, and would not notice that the broker is
			// away.
			if _, err := r.Client.LastSequence(r.Context()); err != nil && fault.Of(err) == fault.Unknown {
				return nil, err
			}
			v.Verdict = s.verdict(r, time.Time{}, checkWait)
			if v.Asked = v.Asked && r.Form.OK(); !v.Asked {
				return v, nil
			}
			v.Check, v.Query = s.check(r, key, checkWait), key.query()
			s.work.mu.Lock()
			defer s.work.mu.Unlock()
			v.Read = s.work.read[key]
			if one := s.work.repairs[key]; one != nil {
				copied := *one
				v.Repair = &copied
			}
			return v, nil
		},
		// The order of this page is to check again now.
		Do: func(r *shell.Request) (string, error) {
			s.verdict(r, time.Now(), checkWait)
			return "health", nil
		},
	}
}

func readCheck(r *shell.Request) checkKey {
	k := readRange(r)
	k.Job = r.Form.Get("job")
	if err := codec.ValidateJobFilter(k.Job); err != nil {
		r.Form.Wrong("job", "%v", err)
	}
	return k
}

func readRange(r *shell.Request) checkKey {
	k := checkKey{From: r.Form.Time("from", r.Prefs.Location), To: r.Form.Time("to", r.Prefs.Location)}
	switch {
	case !k.To.IsZero() && !k.From.IsZero() && !k.To.After(k.From):
		r.Form.Wrong("to", "it is not after the beginning of the range")
	case k.From.After(time.Now()):
		r.Form.Wrong("from", "it is in the future")
	}
	return k
}

// check verifies a range in the background, and waits at most for patience for the result.
func (s *Site) check(r *shell.Request, key checkKey, patience time.Duration) board.Result[checked] {
	c := r.Client
	return s.checks.Get(r.Context(), key, time.Time{}, patience, func(ctx context.Context) (out checked, err error) {
		o := key.options()
		o.Progress = func(n int) { s.work.progress(key, n) }
		o.Unreadable = func(err error) {
			if len(out.Unreadable) < 5 {
				out.Unreadable = append(out.Unreadable, err.Error())
			}
		}
		defer s.work.progress(key, 0)
		out.Sum, err = c.Verify(ctx, o, func(p client.SlotProblem) error {
			if len(out.Found) < maxFound {
				out.Found = append(out.Found, p)
			}
			if isRepairable(p) {
				out.Repairable++
			}
			return nil
		})
		return out, err
	})
}

// progress remembers how many values a check has read so far. 0: the check has ended.
func (w *work) progress(key checkKey, n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.read == nil {
		w.read = map[checkKey]int{}
	}
	if w.read[key] = n; n == 0 {
		delete(w.read, key)
	}
}

// repairPage says which slots a repair offers again, and offers them.
func (s *Site) repairPage() shell.Page {
	return shell.Page{
		Path: "/health/repair", Nav: "health", File: "order.html",
		Show: func(r *shell.Request) (any, error) {
			key := readCheck(r)
			o := order{Title: "Repair", Verb: "Offer them again", Back: "health?" + key.query()}
			for name, value := range map[string]string{"from": r.Form.Get("from"), "to": r.Form.Get("to"), "job": key.Job} {
				o.hidden(r, name, value)
				if wrong := r.Form.Error(name); wrong != "" {
					o.Says = append(o.Says, name+": "+wrong)
				}
			}
			r.Form.Get("verify")
			err := s.sayRepair(r, key, &o)
			o.permit(r, starts)
			return o, err
		},
		Do: func(r *shell.Request) (string, error) {
			key := readCheck(r)
			if !r.Form.OK() {
				return "", shell.ErrField
			}
			_ = s.repairNow(r, key) // the page of health shows the error
			return "health?" + key.query(), nil
		},
	}
}

// sayRepair says which slots a repair offers again.
func (s *Site) sayRepair(r *shell.Request, key checkKey, o *order) error {
	if !r.Form.OK() {
		return nil
	}
	check := s.check(r, key, repairWait)
	n := check.Value.Repairable
	switch {
	case check.Err != nil:
		return check.Err
	case !check.Ready:
		o.Waiting = true
		o.Says = append(o.Says, "The range is still being verified. Reload this page to see the result.")
		return nil
	case n == 0:
		o.Says = append(o.Says, "There is nothing to repair in this range.")
	default:
		o.Ready = true
		o.Says = append(o.Says,
			fmt.Sprintf("Slots that are offered again to the workers: %d. Workers treat them like any other slot, by their record: a slot that has lost its record runs again.", n),
			"Slots that are too old for the job's catch-up policy are recorded as missed. If another program repairs at the same time, no slot runs twice because of that.")
	}
	o.list(check.Value.Found)
	if left := check.Value.Sum.BeyondRepair; left > 0 {
		o.Says = append(o.Says, fmt.Sprintf("%d cannot be repaired.", left))
	}
	return nil
}

// list names the first problems, and why some of them cannot be repaired.
func (o *order) list(found []client.SlotProblem) {
	const most = 20
	for _, p := range found[:min(len(found), most)] {
		switch {
		case p.BeyondRepair != "":
			o.Says = append(o.Says, p.ID+" cannot be repaired: "+p.BeyondRepair)
		case isRepairable(p):
			o.Says = append(o.Says, p.ID+": "+p.Detail)
		}
	}
	if len(found) > most {
		o.Says = append(o.Says, "and more")
	}
}

// repairNow starts a repair that does not end with the request, and waits a moment for it. If the repair
// has failed by then, it returns why.
func (s *Site) repairNow(r *shell.Request, key checkKey) error {
	const maxRepairs = 20 // if there are as many, those that have ended are forgotten
	w := &s.work
	w.mu.Lock()
	if one := w.repairs[key]; one != nil && one.Running {
		w.mu.Unlock()
		return nil
	}
	if w.repairs == nil {
		w.repairs = map[checkKey]*repair{}
	}
	if len(w.repairs) >= maxRepairs {
		maps.DeleteFunc(w.repairs, func(_ checkKey, one *repair) bool { return !one.Running })
	}
	one := &repair{Running: true}
	w.repairs[key] = one
	w.mu.Unlock()
	ended, c := make(chan error, 1), r.Client
	s.repairing.Go(func() { ended <- s.runRepair(c, key, one) })
	wait := time.NewTimer(repairWait)
	defer wait.Stop()
	select {
	case err := <-ended:
		return err
	case <-wait.C:
	case <-r.Context().Done():
	}
	return nil
}

func (s *Site) runRepair(c *client.Client, key checkKey, one *repair) error {
	ctx, cancel := context.WithTimeout(s.closing, repairTime)
	defer cancel()
	o := key.options()
	o.Repair = true
	_, err := c.Verify(ctx, o, func(p client.SlotProblem) error {
		s.work.mu.Lock()
		defer s.work.mu.Unlock()
		switch {
		case p.Repair == client.RepairOffered:
			one.Offered++
		case p.Repair == client.RepairAlreadyOffered:
			one.Already++
		case p.BeyondRepair != "":
			one.Left++
		}
		return nil
	})
	s.work.mu.Lock()
	defer s.work.mu.Unlock()
	one.Running, one.Ended = false, time.Now()
	switch {
	case errors.Is(err, job.ErrDenied):
		one.Err = "the NATS login of this process may not publish slots"
	case err != nil:
		one.Err = err.Error()
	}
	return err
}
