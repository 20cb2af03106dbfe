package boot_test

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"testing"
	"time"

	"github.com/cronce-io/cronce/internal/fleet/boot"
)

// TestMain makes the test binary its own second process.
func TestMain(m *testing.M) {
	if os.Getenv("BOOT_PRINT_NOW") != "" {
		fmt.Print(boot.Now().Nanoseconds())
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// A signal may end a nap early, so one of several must take its time.
func TestANapTakesItsTime(t *testing.T) {
	t.Parallel()
	for tries := 0; ; tries++ {
		before := time.Now()
		boot.Nap(2 * time.Millisecond)
		if took := time.Since(before); took >= 2*time.Millisecond {
			return
		} else if tries > 20 {
			t.Fatalf("napped for %v, want 2ms", took)
		}
	}
}

func TestNowNeverGoesBack(t *testing.T) {
	t.Parallel()
	last := boot.Now()
	for range 10_000 {
		now := boot.Now()
		if now < last {
			t.Fatalf("read %v after %v", now, last)
		}
		last = now
	}
	if last <= 0 {
		t.Fatalf("Now() = %v, want more than 0", last)
	}
}

func TestTwoProcessesReadTheSameClock(t *testing.T) {
	t.Parallel()
	switch runtime.GOOS {
	case "linux", "darwin", "windows":
	default:
		t.Skip("not promised on " + runtime.GOOS)
	}
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "BOOT_PRINT_NOW=1")
	const tick = 20 * time.Millisecond // of the coarsest of the clocks
	before := boot.Now() - tick
	out, err := cmd.Output()
	after := boot.Now() + tick
	if err != nil {
		t.Fatal(err)
	}
	var nanos int64
	if _, err := fmt.Sscan(string(out), &nanos); err != nil {
		t.Fatalf("%q: %v", out, err)
	}
	if there := time.Duration(nanos); there < before || there > after {
		t.Fatalf("the other process read %v, this one %v before and %v after", there, before, after)
	}
}
