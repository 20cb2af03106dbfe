package base

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Duration is a flag's value that also accepts days: "7d", "36h", "1m30s".
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
		if n, err := strconv.ParseUint(days, 10, 32); err == nil && n <= most {
			*d = Duration(n) * Duration(24*time.Hour)
			return nil
		}
	}
	v, err := time.ParseDuration(text)
	if err != nil || v < 0 {
		return fmt.Errorf("want a duration like 90s, 36h or 7d")
	}
	*d = Duration(v)
	return nil
}

// ParseTime parses the RFC 3339 value of a flag. The time is zero if the value is empty.
func ParseTime(flag, text string) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	t, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return t, fmt.Errorf("invalid %s %q: want an RFC 3339 time like 2026-03-29T00:00:00Z", flag, text)
	}
	return t, nil
}
