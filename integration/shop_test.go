//go:build builds && !windows

package integration

import (
	"encoding/json"
	"io"
	"net/http"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/cronce-io/cronce/client"
	"github.com/cronce-io/cronce/internal/lab/filetest"
	"github.com/cronce-io/cronce/job"
)

// shop is the service of testdata/shop. It is built as another module, with the race detector.
type shop struct {
	*site
	process *process
	base    string // of its URLs
}

func openShop(t *testing.T) *shop {
	t.Helper()
	s := &shop{site: newForeignSite(t)}
	dir := outsideModule(t, string(filetest.Read(t, "testdata/shop/main.go")))
	if strings.TrimSpace(goIn(t, dir, "env", "CGO_ENABLED")) != "1" {
		need(t, "cgo", "the race detector does not work without it")
	}
	goIn(t, dir, "build", "-race", "-o", "shop", ".")
	s.process = start(t, "shop", s.env(), nil, filepath.Join(dir, "shop"), "-url", s.url, "-listen", "127.0.0.1:0")
	s.process.says("listening on ")
	s.base = "http://" + regexp.MustCompile(`listening on (\S+)`).FindStringSubmatch(s.process.stderr())[1]
	return s
}

// do makes a request and decodes the answer. It never calls Fatal, so goroutines may call it.
func do[T any](s *shop, method, path, body string, want int) (v T) {
	r, err := http.NewRequestWithContext(s.t.Context(), method, s.base+path, strings.NewReader(body))
	if err != nil {
		s.t.Error(err)
		return v
	}
	a, err := http.DefaultClient.Do(r)
	if err != nil {
		s.t.Error(err)
		return v
	}
	defer a.Body.Close()
	text, err := io.ReadAll(a.Body)
	if err == nil && a.StatusCode == want {
		err = json.Unmarshal(text, &v)
	}
	if err != nil || a.StatusCode != want {
		s.t.Errorf("%s %s: %s %s, %v; want status %d", method, path, a.Status, text, err, want)
	}
	return v
}

// doing makes a request in a goroutine.
func doing[T any](s *shop, method, path, body string, want int) (answer func() T) {
	answers := make(chan T, 1)
	go func() { answers <- do[T](s, method, path, body, want) }()
	return func() T { return <-answers }
}

func (s *shop) outcome(id string) client.SlotDetails {
	return do[client.SlotDetails](s, "GET", "/orders/"+id+"/outcome", "", http.StatusOK)
}

// The test plays a day of the service: all that it does with package client. In the middle of most of that, the
// NATS server is killed.
func TestServiceOfAnotherModuleOperatesJobsWhileItsBrokerIsKilled(t *testing.T) {
	t.Parallel()
	s := openShop(t)
	const anOrder = `{"customer": "ada", "cents": 500}`

	// It triggers with a payload, and waits.
	first := do[map[string]string](s, "PUT", "/orders/1", anOrder, http.StatusCreated)
	if got := s.outcome("1"); first["id"] != "charge:@1" || got.State != job.Succeeded || string(got.Result) != `{"number":1,"cents":500}` {
		t.Errorf("the first order: %v, and its outcome %+v", first, got)
	}
	if again := do[map[string]string](s, "PUT", "/orders/1", anOrder, http.StatusOK); again["state"] != string(job.Succeeded) {
		t.Errorf("the same order again: %v", again)
	}
	do[any](s, "PUT", "/orders/2", `{"customer":`, http.StatusBadRequest)
	do[any](s, "GET", "/orders/3/outcome", "", http.StatusNotFound)
	do[any](s, "PUT", "/orders/4", `{"customer": 7}`, http.StatusCreated)
	if got := s.outcome("4"); got.State != job.Failed || !strings.Contains(got.Error, "customer: got number, want string") || got.Attempt != 1 {
		t.Errorf("an order with a wrong member: %+v", got)
	}

	// It shows progress. The handler returns while the broker is away, and meanwhile an order arrives.
	held := doing[any](s, "POST", "/bank/hold", "", http.StatusOK)
	do[any](s, "PUT", "/orders/5", anOrder, http.StatusCreated)
	held()
	eventually(t, "the progress of order 5", func() bool {
		now := do[client.RunningAttempt](s, "GET", "/orders/5/progress", "", http.StatusOK)
		return now.Progress != nil && now.Progress.Done == 1 && now.Progress.Text == "asking the bank" && strings.Contains(now.Output, "customer=ada")
	})
	waiting := doing[client.SlotDetails](s, "GET", "/orders/5/outcome", "", http.StatusOK)
	var meanwhile func() map[string]string
	s.restartServer(func(p *process) {
		p.kill()
		do[any](s, "POST", "/bank/release", "", http.StatusOK)
		meanwhile = doing[map[string]string](s, "PUT", "/orders/6", anOrder, http.StatusCreated)
	})
	if got := waiting(); got.State != job.Succeeded || got.Attempt != 1 || string(got.Result) != `{"number":2,"cents":500}` {
		t.Errorf("order 5, whose handler returned without a broker: %+v", got)
	}
	if got := meanwhile(); got["id"] != "charge:@6" {
		t.Errorf("order 6, sent without a broker: %v", got)
	}
	if got := s.outcome("6"); got.State != job.Succeeded || string(got.Result) != `{"number":3,"cents":500}` {
		t.Errorf("order 6: %+v", got)
	}
	if last := do[client.SlotRow](s, "GET", "/orders/last", "", http.StatusOK); last.ID != "charge:@6" {
		t.Errorf("the last order: %+v, want 6", last)
	}

	// It lists failures, and retries them.
	do[any](s, "POST", "/bank/down", "", http.StatusOK)
	for _, id := range []string{"7", "8"} {
		do[any](s, "PUT", "/orders/"+id, anOrder, http.StatusCreated)
		if got := s.outcome(id); got.State != job.Failed || !strings.Contains(got.Error, "the bank does not answer") {
			t.Errorf("order %s without a bank: %+v", id, got)
		}
	}
	var failed []string
	for _, row := range do[[]client.SlotRow](s, "GET", "/failures", "", http.StatusOK) {
		failed = append(failed, row.ID)
	}
	if want := []string{"charge:@4", "charge:@7", "charge:@8"}; !slices.Equal(failed, want) {
		t.Errorf("failures: %q, want %q", failed, want)
	}
	do[any](s, "POST", "/bank/up", "", http.StatusOK)
	var retrying func() []string
	s.restartServer(func(p *process) {
		retrying = doing[[]string](s, "POST", "/failures/retry", "", http.StatusOK)
		p.kill()
	})
	if got := retrying(); !slices.Equal(got, failed) {
		t.Errorf("retried: %q, want %q", got, failed)
	}
	for id, want := range map[string]job.State{"4": job.Failed, "7": job.Succeeded, "8": job.Succeeded} {
		eventually(t, "order "+id+" to be retried", func() bool {
			got := s.outcome(id)
			return got.State == want && len(got.Attempts) == 2
		})
	}

	// It pauses during a migration.
	migrated := doing[map[string]int64](s, "POST", "/migrations", "", http.StatusOK)
	s.restartServer(func(p *process) { p.kill() })
	report := migrated()
	if report["disturbed"] != 0 || report["syncs"] == 0 {
		t.Errorf("the migration: %v, want no sync during it, and some before", report)
	}
	eventually(t, "the syncs to go on", func() bool { return do[int64](s, "GET", "/syncs", "", http.StatusOK) > report["syncs"] })
	term(s.process)
	if !strings.Contains(s.process.stdout(), "done") {
		t.Errorf("the service wrote %q", s.process.stdout())
	}
}
