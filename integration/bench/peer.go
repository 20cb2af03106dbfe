package main

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"sync"
	"time"
)

// peer is a scheduler or queue that is measured.
type peer interface {
	name() string
	settings() string // how the peer and its server are configured

	// open sets the peer up without any work. handle is the handler of its worker. The returned
	// function removes everything that open and the worker created.
	open(ctx context.Context, handle func(payload []byte)) (closed func() error, err error)

	// enter stores a run for each payload. The runs may start at the given time; zero: at once.
	enter(ctx context.Context, at time.Time, payloads [][]byte) error

	// work runs what was entered, until ctx ends.
	work(ctx context.Context) error
}

// row is the result of one peer.
type row struct {
	Name     string  `json:"name"`
	Settings string  `json:"settings"`
	Entered  float64 `json:"entered_per_second,omitempty"`
	Worked   float64 `json:"worked_per_second,omitempty"`
	P50      float64 `json:"late_p50_ms"`
	P99      float64 `json:"late_p99_ms"`
}

// payload is about 90 bytes of JSON. At is when its run is due; zero: at once.
type payload struct {
	At  time.Time `json:"at"`
	Pad string    `json:"pad"`
}

func payloads(n int, at time.Time) [][]byte {
	const pad = "0123456789012345678901234567890123456789012345678"
	all := make([][]byte, n)
	for i := range all {
		all[i], _ = json.Marshal(payload{at, pad}) // never fails
	}
	return all
}

// runs records the calls of handlers.
type runs struct {
	mu          sync.Mutex
	first, last time.Time
	n           int
	late        []time.Duration
	want        int           // the number of calls to wait for
	done        chan struct{} // closed at that number
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

// at returns the quantile q of the lateness, in milliseconds.
func (r *runs) at(q float64) float64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.late) == 0 {
		return 0
	}
	slices.Sort(r.late)
	return float64(r.late[min(int(q*float64(len(r.late))), len(r.late)-1)].Microseconds()) / 1000
}

// drain measures how fast runs are entered, and then how fast one worker process runs them, from the
// start of the first handler to that of the last.
func drain(ctx context.Context, p peer, n int, into *row) (err error) {
	r := newRuns(n)
	closed, err := p.open(ctx, r.handle)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closed()) }()
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

// lateness enters runs for each of the next seconds, and measures how late they start.
func lateness(ctx context.Context, p peer, each, seconds int, into *row) (err error) {
	r := newRuns(each * seconds)
	closed, err := p.open(ctx, r.handle)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closed()) }()
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

// working calls f while the peer's worker runs. If the worker ends, the context of f ends.
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
	return errors.Join(err, <-ended)
}
