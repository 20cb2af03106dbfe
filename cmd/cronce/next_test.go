package main

import (
	"strings"
	"testing"

	"github.com/cronce-io/cronce/cmd/cronce/base"
)

func TestNext(t *testing.T) {
	t.Parallel()
	berlin := "--tz Europe/Berlin --from 2026-03-28T00:00:00Z --count 3"
	for name, args := range map[string]string{
		"next_gap.txt":             berlin,
		"next_gap.json":            berlin + " -o json",
		"next_gap_skip.json":       berlin + " -o json --dst-gap skip",
		"next_overlap.txt":         "--tz Europe/Berlin --from 2026-10-24T00:00:00Z --until 2026-10-26T01:30:00Z --dst-overlap both",
		"next_from_now.json":       "--tz UTC -o json",
		"next_until_is_not_in.txt": "--from 2026-03-28T00:00:00Z --until 2026-03-28T02:30:00Z",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := cli{}.run(t, append([]string{"next", "30 2 * * *"}, strings.Fields(args)...)...)
			if r.code != base.ExitDone || r.stderr != "" {
				t.Fatalf("%+v", r)
			}
			golden(t, name, r.stdout)
		})
	}
}

// A time.Duration holds 292 years.
func TestNextSaysHowFarASlotOfAnyCenturyIs(t *testing.T) {
	t.Parallel()
	for from, want := range map[string]string{"0001-01-01T00:00:01Z": "739337d ago", "2799-01-01T00:00:00Z": "in 282610d"} {
		if r := (cli{}).run(t, "next", "@yearly", "--tz", "UTC", "--count", "1", "--from", from); r.code != base.ExitDone || !strings.Contains(r.stdout, want) {
			t.Errorf("from %s: %+v, want %q", from, r, want)
		}
	}
}

func TestNextOfAFile(t *testing.T) {
	t.Parallel()
	c := cli{stdin: `version: 1
jobs:
  - {name: hourly, schedule: "@hourly", timezone: Asia/Kolkata, action: {exec: [a]}}
  - {name: once, schedule: "@at 2026-03-28T14:00:00Z", action: {exec: [a]}}
`}
	for name, args := range map[string]string{
		"next_file.txt":      "--count 4",
		"next_file.json":     "--count 4 -o json",
		"next_file_one.json": "--name once -o json",
	} {
		r := c.run(t, append([]string{"next", "-f", "-"}, strings.Fields(args)...)...)
		if r.code != base.ExitDone || r.stderr != "" {
			t.Fatalf("%+v", r)
		}
		golden(t, name, r.stdout)
	}
}
