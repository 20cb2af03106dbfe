package alert

import (
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"
	"time"

	"github.com/cronce-io/cronce/internal/action/httpaction"
	"github.com/cronce-io/cronce/internal/jobfile/spec"
	"github.com/cronce-io/cronce/job"
)

func TestAFailingTargetIsTriedByOneDeliveryAtATimeAndLaterEachTime(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_800_000_000, 0)
	s := newTargets(func() time.Time { return now })
	acquire := func(name string, want time.Duration, ok bool) {
		t.Helper()
		if wait, got := s.acquire(name, ""); got != ok || wait != want {
			t.Errorf("%s: wait %v, %v; want %v, %v", name, wait, got, want, ok)
		}
	}
	for range maxPerTarget {
		acquire("a", 0, true)
	}
	acquire("a", busyDelay, false)
	acquire("b", 0, true) // another target has its own bound
	for range maxPerTarget {
		s.release("a", "", failed) // together they count as one failure
	}
	acquire("a", 2*time.Second, false)
	last := 2 * time.Second
	for _, wait := range []time.Duration{4 * time.Second, 8 * time.Second, 16 * time.Second, 32 * time.Second, maxBackoff, maxBackoff} {
		now = now.Add(maxBackoff)
		acquire("a", 0, true)
		acquire("a", last, false) // another delivery probes it
		s.release("a", "", failed)
		acquire("a", wait, false)
		last = wait
	}
	now = now.Add(maxBackoff)
	acquire("a", 0, true)
	s.release("a", "", delivered)
	for range maxPerTarget {
		acquire("a", 0, true) // it works again
	}
}

func TestIdleTargetsAreForgotten(t *testing.T) {
	t.Parallel()
	s := newTargets(time.Now)
	for i := range 3 * maxTargets {
		name := time.Duration(i).String()
		if _, ok := s.acquire(name, ""); !ok {
			t.Fatal("a new target has to wait")
		}
		s.release(name, "", delivered)
	}
	if len(s.all) > maxTargets {
		t.Errorf("%d targets are remembered, want at most %d", len(s.all), maxTargets)
	}
}

func TestAFailingURLDelaysNoOtherURLOfItsHostAndAFailingHostAll(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_800_000_000, 0)
	s := newTargets(func() time.Time { return now })
	const host = "https://hooks.example.com"
	may := func(url string, want bool) {
		t.Helper()
		if _, got := s.acquire(host+url, host); got != want {
			t.Errorf("%s: may be called: %t, want %t", url, got, want)
		}
	}
	for range 10 {
		now = now.Add(maxDelay)
		may("/revoked", true)
		s.release(host+"/revoked", host, failed)
		may("/revoked", false)
		may("/good", true)
		s.release(host+"/good", host, delivered)
	}
	may("/good", true)
	s.release(host+"/good", host, hostFailed)
	may("/other", false)
	now = now.Add(2 * time.Second)
	may("/good", false) // another alert probes the host
	may("/other", true)
	s.release(host+"/other", host, delivered)
	now = now.Add(2 * time.Second)
	may("/good", true)
}

// The broker redelivers each alert that was postponed, and looks at all of them when one is.
func TestManyAlertsOfAFailingTargetAreSpread(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_800_000_000, 0)
	s := newTargets(func() time.Time { return now })
	if _, ok := s.acquire("a", ""); !ok {
		t.Fatal("a new target has to wait")
	}
	s.release("a", "", failed)
	within := 0
	for range 100_000 {
		if wait, _ := s.acquire("a", ""); wait < time.Minute {
			within++
		}
	}
	if within > 600 {
		t.Errorf("%d of 100,000 alerts come again within a minute, want at most 600", within)
	}
}

func TestWhatAnAnswerSpeaksFor(t *testing.T) {
	t.Parallel()
	for status, want := range map[int]result{301: failed, 400: failed, 404: failed, 410: failed, 408: failed, 429: hostFailed, 500: hostFailed, 503: hostFailed} {
		u := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) }))
		defer u.Close()
		to, err := url.Parse(u.URL)
		if err != nil {
			t.Fatal(err)
		}
		send, err := httpaction.New(spec.HTTP{URL: to, Method: http.MethodGet}, httpaction.NewTransport(), func(string) string { return "" })
		if err != nil {
			t.Fatal(err)
		}
		err = send(t.Context(), job.Run{Slot: job.Slot{Job: "j", Token: "k"}, Output: io.Discard})
		if got := resultOf(err); got != want || isHopeless(httpaction.Status(err)) != (want == failed && status != 408) {
			t.Errorf("status %d: %v, hopeless %t", status, got, isHopeless(httpaction.Status(err)))
		}
		u.Close()
		if got := resultOf(send(t.Context(), job.Run{Slot: job.Slot{Job: "j", Token: "k"}, Output: io.Discard})); got != hostFailed {
			t.Errorf("a refused connection: %v", got)
		}
	}
}
