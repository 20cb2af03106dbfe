package tzdata

import (
	"archive/zip"
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/cronce-io/cronce/internal/codec"
)

// This test fails when zoneinfo.zip is replaced, as a reminder to set Version.
func TestTheVersionIsThatOfTheZoneData(t *testing.T) {
	t.Parallel()
	const version, digest = "2025c", "8f55634d05f8bca1f7bc7c69c5933428c69357e0bdf565e5ba224e3f88ff12e8"
	if got := fmt.Sprintf("%x", sha256.Sum256(archive)); got != digest {
		t.Errorf("zoneinfo.zip is now %s: set Version and this digest", got)
	}
	if Version != version {
		t.Errorf("Version = %q, want %q", Version, version)
	}
}

func TestEveryZoneInTheDataLoads(t *testing.T) {
	t.Parallel()
	files, err := zip.NewReader(bytes.NewReader(archive), int64(len(archive)))
	if err != nil {
		t.Fatal(err)
	}
	if len(files.File) < 400 {
		t.Errorf("only %d zones", len(files.File))
	}
	for _, file := range files.File {
		if loc, err := Load(file.Name); err != nil || loc.String() != file.Name {
			t.Errorf("%s: %v, %v", file.Name, loc, err)
		}
	}
}

func TestZonesComeFromTheProgramAndNotFromTheSystem(t *testing.T) {
	t.Setenv("ZONEINFO", t.TempDir())
	loc, err := Load("Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	if _, offset := time.Date(2026, 7, 1, 0, 0, 0, 0, loc).Zone(); offset != 7200 {
		t.Errorf("summer in Berlin is %d s from UTC", offset)
	}
	if again, _ := Load("Europe/Berlin"); again != loc {
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
		if _, err := Load(name); !errors.Is(err, codec.ErrInvalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %s", name, err, want)
		}
	}
}

func TestAnUnknownZoneIsSuggestedByMeaning(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{ // empty: no suggestion
		"GMT+2": "Etc/GMT-2 (UTC+2 all year)", "UTC-5": "Etc/GMT+5 (UTC-5 all year)", "+02:00": "Etc/GMT-2", "UTC+0": "UTC?", "UTC+5:30": "", "GMT+15": "",
		"PST": "America/Los_Angeles?", "pst": "America/Los_Angeles?", "BST": "Europe/London or Asia/Dhaka?", "IST": "Asia/Kolkata, Europe/Dublin or Asia/Jerusalem?", "Z": "UTC?",
		"XST": "", "ESR": "", "Rome": "Europe/Rome?", "utc": "UTC?", "Europe/Berln": "Europe/Berlin?",
	} {
		_, err := Load(name)
		if err == nil || want != "" && !strings.Contains(err.Error(), "did you mean "+want) || want == "" && strings.Contains(err.Error(), "did you mean") {
			t.Errorf("%s: %v, want the suggestion %q", name, err, want)
		}
	}
	for short, zones := range abbreviations {
		for _, zone := range strings.Split(strings.ReplaceAll(zones, " or ", ", "), ", ") {
			if _, err := Load(zone); err != nil {
				t.Errorf("%s: %v", short, err)
			}
		}
		if _, err := Load(short); err == nil {
			t.Errorf("%s is a zone", short)
		}
	}
}
