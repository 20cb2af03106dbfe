package httpaction

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/cronce-io/cronce/internal/action"
	"github.com/cronce-io/cronce/job"
)

const (
	// maxDrained is how much of an answer is read in all, in bytes: beyond it a
	// new connection is cheaper than the rest.
	maxDrained = 1 << 20

	// maxRetryAfter is the longest that a service can put an attempt off. One that
	// says "in a year" would otherwise end the slot.
	maxRetryAfter = time.Hour
)

// readAnswer returns as much of the body as may be kept, without the secrets, and
// reads the rest up to maxDrained, so that the connection can be used again. Of a
// body that is cut off, by us or on its way, the last bytes are left out, as many
// as the longest secret has: what has begun there could not be told any more.
func readAnswer(resp *http.Response, secrets []string) ([]byte, error) {
	if resp.StatusCode == http.StatusSwitchingProtocols {
		return nil, nil // what follows is no body, and has no end
	}
	cut := longest(secrets)
	window := job.MaxOutput + cut
	kept, err := io.ReadAll(io.LimitReader(resp.Body, int64(window)))
	whole := err == nil && len(kept) < window
	kept = action.Hide(kept, secrets)
	if whole {
		return kept, nil
	}
	if err == nil {
		_, err = io.Copy(io.Discard, io.LimitReader(resp.Body, maxDrained))
	}
	return kept[:max(0, len(kept)-cut)], err
}

// judge turns a response whose body was read, with broken for how that ended,
// into the attempt's end.
func judge(resp *http.Response, broken error) error {
	status := errors.New(strings.TrimSpace(fmt.Sprintf("status %d %s", resp.StatusCode, http.StatusText(resp.StatusCode))))
	switch code := resp.StatusCode; {
	case code >= 200 && code <= 299:
		if broken != nil {
			return fmt.Errorf("%w, but the answer broke off: %w", status, broken)
		}
		return nil
	case action.Rejected(code):
		return job.Permanent(status)
	case code >= 300 && code <= 399:
		if to, err := url.Parse(resp.Header.Get("Location")); err == nil && to.Host != "" {
			status = fmt.Errorf("%w to %s, not followed: want the url that it leads to", status, to.Host)
		}
	}
	if delay := retryAfter(resp.Header); delay > 0 {
		return job.RetryAfter(min(delay, maxRetryAfter), status)
	}
	return status
}

// retryAfter is how long to wait: seconds, or until a date by the service's own
// clock, when it tells it. Zero: it does not say.
func retryAfter(h http.Header) time.Duration {
	s := h.Get("Retry-After")
	n, err := strconv.ParseUint(s, 10, 64)
	if err == nil || errors.Is(err, strconv.ErrRange) {
		return time.Duration(min(n, uint64(maxRetryAfter/time.Second))) * time.Second
	}
	at, err := http.ParseTime(s)
	if err != nil {
		return 0
	}
	now, err := http.ParseTime(h.Get("Date"))
	if err != nil {
		now = time.Now()
	}
	return at.Sub(now)
}
