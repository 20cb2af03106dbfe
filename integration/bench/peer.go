package main

import (
	"context"
	"encoding/json"
	"slices"
	"sync"
	"time"
)

// peer is something that runs work later.
type peer interface {
	name() string
	settings() string // how it is set up, and how its server keeps data

	// open sets it up, with a handler, empty; the returned function removes all.
	open(ctx context.Context, handle func(payload []byte)) (closed func() error, err error)

	// enter hands over work that may begin at the given time; zero: at once.
	enter(ctx context.Context, at time.Time, payloads [][]byte) error

	// work begins to run what is there, until ctx ends.
	work(ctx context.Context) error
}

// row is what came of one peer.
type row struct {
	Name     string  `json:"name"`
	Settings string  `json:"settings"`
	Entered  float64 `json:"entered_per_second,omitempty"`
	Worked   float64 `json:"worked_per_second,omitempty"`
	P50      float64 `json:"late_p50_ms"`
	P99      float64 `json:"late_p99_ms"`
}

// payload is of a hundred bytes and says when it was to begin.
type payload struct {
	At  time.Time `json:"at"`
	Pad string    `json:"pad"`
}

func payloads(n int, at time.Time) [][]byte {
	const pad = "0123456789012345678901234567890123456789012345678"
	all := make([][]byte, n)
	for i := range all {
		all[i], _ = json.Marshal(payload{at, pad}) // it never fails
	}
	return all
}

// runs takes in what handlers were called with.
type runs struct {
	mu          sync.Mutex
	first, last time.Time
	n           int
	late        []time.Duration
	want        int
	done        chan struct{}
}

func newRuns(want int) *runs { return &runs{want: want, done: make(chan struct{})} }

func (r *runs) handle(data []byte) {
	now := time.Now()
	var p payload
	bad := json.Unmarshal(data, &p) != nil
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.n == 0 {
		r.first = now
	}
	r.last = now
	if r.n++; r.n == r.want {
		close(r.done)
	}
	if !bad && !p.At.IsZero() {
		r.late = append(r.late, now.Sub(p.At))
	}
}

func (r *runs) wait(ctx context.Context) error {
	select {
	case <-r.done:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// at is a quantile of the lateness, in milliseconds.
func (r *runs) at(q float64) float64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.late) == 0 {
		return 0
	}
	slices.Sort(r.late)
	return float64(r.late[min(int(q*float64(len(r.late))), len(r.late)-1)].Microseconds()) / 1000
}

// drain measures how fast work is entered, and how fast one worker process then
// runs it: from the first handler's start to the last's.
func drain(ctx context.Context, p peer, n int, into *row) (err error) {
	r := newRuns(n)
	closed, err := p.open(ctx, r.handle)
	if err != nil {
		return err
	}
	defer func() { err = firstError(err, closed()) }()
	began := time.Now()
	if err := p.enter(ctx, time.Time{}, payloads(n, time.Time{})); err != nil {
		return err
	}
	into.Entered = float64(n) / time.Since(began).Seconds()
	return working(ctx, p, func(ctx context.Context) error {
		if err := r.wait(ctx); err != nil {
			return err
		}
		into.Worked = float64(n) / r.last.Sub(r.first).Seconds()
		return nil
	})
}

// lateness measures how late work begins that was entered for each of some seconds.
func lateness(ctx context.Context, p peer, each, seconds int, into *row) (err error) {
	r := newRuns(each * seconds)
	closed, err := p.open(ctx, r.handle)
	if err != nil {
		return err
	}
	defer func() { err = firstError(err, closed()) }()
	return working(ctx, p, func(ctx context.Context) error {
		first := time.Now().Truncate(time.Second).Add(4 * time.Second)
		for i := range seconds {
			at := first.Add(time.Duration(i) * time.Second)
			if err := p.enter(ctx, at, payloads(each, at)); err != nil {
				return err
			}
		}
		if err := r.wait(ctx); err != nil {
			return err
		}
		into.P50, into.P99 = r.at(0.5), r.at(0.99)
		return nil
	})
}

// working does f while the peer works.
func working(ctx context.Context, p peer, f func(context.Context) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	ended := make(chan error, 1)
	go func() {
		err := p.work(ctx)
		cancel(err)
		ended <- err
	}()
	err := f(ctx)
	cancel(nil)
	return firstError(err, <-ended)
}

func firstError(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}
