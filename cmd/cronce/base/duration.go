package base

import (
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/cronce-io/cronce/internal/codec"
)

// Duration is a flag's value that also accepts days: "7d", "36h", "1m30s". It is zero if the flag is
// not given.
type Duration time.Duration

func (d *Duration) String() string {
	if *d == 0 {
		return ""
	}
	return time.Duration(*d).String()
}

func (*Duration) Type() string { return "duration" }

func (d *Duration) Set(text string) error {
	if days, ok := strings.CutSuffix(text, "d"); ok {
		const most = 36500
		if n, err := strconv.ParseUint(days, 10, 32); err == nil && 0 < n && n <= most {
			*d = Duration(n) * Duration(24*time.Hour)
			return nil
		}
	}
	v, err := time.ParseDuration(text)
	if err != nil || v <= 0 {
		return errors.New("want a duration like 90s, 36h or 7d, of more than 0")
	}
	*d = Duration(v)
	return nil
}

// Time is a flag's value: an RFC 3339 time. It is zero if the flag is not given, or empty.
type Time struct {
	time.Time
	text string
}

func (t *Time) String() string { return t.text }

func (*Time) Type() string { return "time" }

func (t *Time) Set(text string) (err error) {
	*t = Time{text: text}
	if text == "" {
		return nil
	}
	if t.Time, err = time.Parse(time.RFC3339, text); err != nil {
		return errors.New("want an RFC 3339 time like 2026-03-29T00:00:00Z")
	}
	if t.IsZero() {
		return errors.New("want a time after the first second of the year 1, which stands for no time")
	}
	return nil
}

// CheckMonitor returns an error if a value of --monitor is not a URL. The error shows the example.
func CheckMonitor(example string, monitors ...string) error {
	for _, text := range monitors {
		if u, err := url.Parse(text); err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
			return fmt.Errorf("invalid --monitor %q: want a URL like %s", codec.WithoutLogin(text), example)
		}
	}
	return nil
}
