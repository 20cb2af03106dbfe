package job

import (
	"archive/zip"
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// Whoever replaces zoneinfo.zip meets this test, and so remembers the version.
func TestTheVersionIsThatOfTheZoneData(t *testing.T) {
	t.Parallel()
	const version, digest = "2025c", "8f55634d05f8bca1f7bc7c69c5933428c69357e0bdf565e5ba224e3f88ff12e8"
	if got := fmt.Sprintf("%x", sha256.Sum256(zoneData)); got != digest {
		t.Errorf("zoneinfo.zip is now %s: set zoneDataVersion and this digest", got)
	}
	if TzdataVersion() != version {
		t.Errorf("TzdataVersion() = %q, want %q", TzdataVersion(), version)
	}
}

func TestEveryZoneInTheDataLoads(t *testing.T) {
	t.Parallel()
	archive, err := zip.NewReader(bytes.NewReader(zoneData), int64(len(zoneData)))
	if err != nil {
		t.Fatal(err)
	}
	if len(archive.File) < 400 {
		t.Errorf("only %d zones", len(archive.File))
	}
	for _, file := range archive.File {
		if loc, err := LoadZone(file.Name); err != nil || loc.String() != file.Name {
			t.Errorf("%s: %v, %v", file.Name, loc, err)
		}
	}
}

func TestZonesComeFromTheProgramAndNotFromTheSystem(t *testing.T) {
	t.Setenv("ZONEINFO", t.TempDir())
	loc, err := LoadZone("Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	if _, offset := time.Date(2026, 7, 1, 0, 0, 0, 0, loc).Zone(); offset != 7200 {
		t.Errorf("summer in Berlin is %d s from UTC", offset)
	}
	if again, _ := LoadZone("Europe/Berlin"); again != loc {
		t.Error("a zone is read twice")
	}
}

func TestUnknownZoneIsAnsweredWithTheOneThatWasMeant(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{
		"Europe/berlin":         "did you mean Europe/Berlin?",
		"berlin":                "did you mean Europe/Berlin?",
		"Europe/Brelin":         "did you mean Europe/Berlin?",
		"utc":                   "did you mean UTC?",
		"Amerika/New_York":      "did you mean America/New_York?",
		"":                      "want an IANA name like Europe/Berlin",
		"Local":                 "another zone on every machine",
		"/etc/localtime":        "no such zone; want",
		"../zoneinfo":           "no such zone; want",
		"Europe/":               "no such zone",
		"Europe/Berlin\x00":     "Berlin\\x00",
		strings.Repeat("x", 99): "xxx...",
	} {
		if _, err := LoadZone(name); !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %s", name, err, want)
		}
	}
}

// The search for slots stands on this: within a span the offset is one, it
// changes where the span says, and the next one is further on. Go's own bounds
// do not hold to it on the last day of some leap years.
func TestSpansHaveOneOffsetAndGoOn(t *testing.T) {
	t.Parallel()
	var names []string
	for name := range zones() {
		names = append(names, name)
	}
	check := func(t interface{ Fatalf(string, ...any) }, name string, u int64, inside ...int64) {
		loc, err := LoadZone(name)
		if err != nil {
			t.Fatalf("%v", err)
		}
		s := spanFrom(loc, u)
		if s.end <= u || s.end <= lastInstant && s.after != offsetAt(loc, s.end) {
			t.Fatalf("%s at %v: %+v", name, time.Unix(u, 0).UTC(), s)
		}
		for _, v := range append(inside, u, u+1, s.end-1) {
			if v = min(max(v, u), s.end-1); offsetAt(loc, v) != s.offset {
				t.Fatalf("%s at %v: %+v, but another offset at %v", name, time.Unix(u, 0).UTC(), s, time.Unix(v, 0).UTC())
			}
		}
	}
	for _, name := range names { // where ZoneBounds goes wrong, and around
		for year := 1996; year <= 2096; year += 4 {
			for hour := -48; hour <= 72; hour += 12 {
				check(t, name, time.Date(year, 12, 31, hour, 30, 0, 0, time.UTC).Unix())
			}
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		u := rapid.Int64Range(-5e9, 2e10).Draw(t, "u")
		ahead := rapid.SliceOfN(rapid.Int64Range(0, 400*daySeconds), 1, 20).Draw(t, "ahead")
		for i := range ahead {
			ahead[i] += u
		}
		check(t, rapid.SampledFrom(names).Draw(t, "zone"), u, ahead...)
	})
}
