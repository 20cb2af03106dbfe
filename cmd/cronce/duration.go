package main

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// duration is a flag's value that also knows days: "7d", "36h", "1m30s".
type duration time.Duration

func (d *duration) String() string {
	if *d == 0 {
		return ""
	}
	return time.Duration(*d).String()
}

func (*duration) Type() string { return "duration" }

func (d *duration) Set(text string) error {
	if days, ok := strings.CutSuffix(text, "d"); ok {
		const most = 36500
		if n, err := strconv.ParseUint(days, 10, 32); err == nil && n <= most {
			*d = duration(n) * duration(24*time.Hour)
			return nil
		}
	}
	v, err := time.ParseDuration(text)
	if err != nil || v < 0 {
		return fmt.Errorf("want a duration like 90s, 36h or 7d")
	}
	*d = duration(v)
	return nil
}
