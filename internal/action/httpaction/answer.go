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
	// maxDrained is how many bytes of an answer are read. Beyond that a new connection is
	// cheaper than reading the rest.
	maxDrained = 1 << 20

	// maxRetryAfter is the longest delay that a service can ask for. Otherwise a delay beyond the
	// horizon would end the slot.
	maxRetryAfter = time.Hour
)

// readAnswer writes the body to output while it arrives, without the secrets, up to maxDrained
// bytes. If the body is incomplete or longer, readAnswer drops the last bytes, one less than the
// longest secret has: they may be the beginning of a secret. The last line of the output then says that
// the rest was not read.
func readAnswer(resp *http.Response, secrets []string, output io.Writer) error {
	if resp.StatusCode == http.StatusSwitchingProtocols {
		return nil // another protocol follows, and the body may never end
	}
	plain := action.NewHider(output, secrets)
	n, err := io.Copy(plain, io.LimitReader(resp.Body, maxDrained+1))
	switch {
	case err != nil:
		return err
	case n > maxDrained:
		_, err = fmt.Fprintf(output, "\n[the answer is longer than %d KiB: the rest was not read]\n", maxDrained>>10)
		return err
	}
	return plain.End()
}

// statusError is the status of an answer that is no success.
type statusError int

func (s statusError) Error() string {
	return strings.TrimSpace(fmt.Sprintf("status %d %s", int(s), http.StatusText(int(s))))
}

// Status returns the status of the answer with which a request has failed, or 0 if there was no answer.
func Status(err error) int {
	var status statusError
	_ = errors.As(err, &status)
	return int(status)
}

// judge returns the result of the attempt for a response whose body was read. broken is the
// error of that read.
func judge(resp *http.Response, broken error) error {
	var status error = statusError(resp.StatusCode)
	switch code := resp.StatusCode; {
	case code >= 200 && code <= 299:
		if broken != nil {
			return fmt.Errorf("%w, but the answer is incomplete: %w", status, broken)
		}
		return nil
	case action.Rejected(code):
		return job.Permanent(status)
	case code >= 300 && code <= 399:
		if to, err := url.Parse(resp.Header.Get("Location")); err == nil && to.Host != "" {
			status = fmt.Errorf("%w to %s, which is not followed: set url to the target", status, to.Host)
		}
	}
	if delay := retryAfter(resp.Header); delay > 0 {
		return job.RetryAfter(min(delay, maxRetryAfter), status)
	}
	return status
}

// retryAfter returns how long to wait, given as seconds or as a date. A date is relative to
// the Date header if there is one. Zero or less means that the service does not ask for a delay.
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
