package shell

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/cronce-io/cronce/client"
	"github.com/cronce-io/cronce/job"
)

const (
	// rightsKept is how long the answer is used: an administrator may change the rights.
	rightsKept = time.Minute

	// rightsDenied is the pause after an answer that the login may not ask for its rights.
	rightsDenied = time.Hour

	// rightsUnknown is the pause after a question without an answer.
	rightsUnknown = 5 * time.Second

	// rightsPatience bounds how long a page waits for the rights.
	rightsPatience = 300 * time.Millisecond
)

// rights remembers what the login of the process may do. All pages share it. As long as that is not
// known, pages offer all orders: the broker decides.
type rights struct {
	ask func(context.Context) (client.Rights, error)

	mu     sync.Mutex
	known  client.Rights
	until  time.Time
	asking bool
}

// get returns the rights. One request at a time asks for them; the others get what was known
// before.
func (r *rights) get(ctx context.Context) client.Rights {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.until.IsZero() {
		r.known = client.Rights{Edit: true, Start: true, Reopen: true}
	}
	if r.asking || time.Now().Before(r.until) {
		return r.known
	}
	r.asking = true
	r.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, rightsPatience)
	now, err := r.ask(ctx)
	cancel()
	r.mu.Lock()
	r.asking = false
	switch {
	case err == nil:
		r.known, r.until = now, time.Now().Add(rightsKept)
	case errors.Is(err, job.ErrDenied):
		r.until = time.Now().Add(rightsDenied)
	default:
		r.until = time.Now().Add(rightsUnknown)
	}
	return r.known
}
