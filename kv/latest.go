package kv

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/cronce-io/cronce/internal/core"
	"github.com/cronce-io/cronce/job"
)

// Limits of one request. The server still answers a request with latestAtOnce keys. A
// request of about latestBytes fits a server whose max_payload is 32 KiB.
const (
	latestAtOnce = 1000
	latestBytes  = 24 << 10
)

// Latest returns the entries of the named jobs, with requests that name many jobs each.
// Any replica answers, so an entry may be stale. A caller that writes on its basis then
// gets a conflict. Latest leaves out jobs that do not exist or cannot be read.
func (j *Jobs) Latest(ctx context.Context, names []string) (map[string]core.Entry, error) {
	type read struct {
		core.Entry
		err error
	}
	b, known := j.bucket(), make(map[string]core.Entry, len(names))
	for len(names) > 0 {
		n, size := 0, 0
		for n < min(len(names), latestAtOnce) && size < latestBytes {
			size += len(b.subject(names[n])) + len(`"",`)
			n++
		}
		part := names[:n]
		names = names[n:]
		found, err := b.latest(ctx, part)
		if err != nil {
			return nil, err
		}
		found = slices.DeleteFunc(found, entry.gone)
		for _, e := range onAllCores(found, func(e entry) read {
			d, err := j.decode(e)
			return read{d, err}
		}) {
			if e.err == nil {
				known[e.Job.Name] = e.Entry
			}
		}
	}
	return known, nil
}

// latest asks any replica for the last message of each key until it is answered or ctx
// ends.
func (b bucket) latest(ctx context.Context, keys []string) (found []entry, err error) {
	missing := make(map[string]bool, len(keys))
	for _, key := range keys {
		if err := b.check(key); err != nil {
			return nil, err
		}
		missing[b.subject(key)] = true
	}
	for began, pause := time.Now(), newPause(); len(missing) > 0; {
		subjects := make([]string, 0, len(missing))
		for subject := range missing {
			subjects = append(subjects, subject)
		}
		part, more, err := b.get(ctx, b.stream(), map[string]any{"multi_last": subjects})
		switch {
		case err == nil:
		case errors.Is(err, job.ErrDenied):
			return nil, fmt.Errorf("read bucket %s: %w", b.name, err)
		case classify(err) == unanswered && wait(ctx, pause.NextBackOff()):
			continue
		default:
			return nil, fmt.Errorf("read bucket %s: %w (after %v): %w", b.name, job.ErrUnknown, time.Since(began).Round(time.Millisecond), err)
		}
		for _, e := range part {
			delete(missing, e.subject)
		}
		found = append(found, part...)
		if !more || len(part) == 0 {
			break
		}
	}
	return found, nil
}
