package connect

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cronce-io/cronce/internal/lab/filetest"
	"github.com/cronce-io/cronce/job"
)

func TestOrderOfTargets(t *testing.T) {
	t.Parallel()
	selected, none := t.TempDir(), t.TempDir()
	if err := os.Mkdir(filepath.Join(selected, "nats"), 0o700); err != nil {
		t.Fatal(err)
	}
	filetest.Write(t, filepath.Join(selected, "nats", "context.txt"), "prod\n")
	creds := filepath.Join(none, "creds")
	filetest.Write(t, creds, "")
	for name, tc := range map[string]struct {
		cfg   Config
		env   map[string]string
		is    string
		local bool
		creds string
	}{
		"server first": {
			cfg: Config{Server: "a:1", Context: "b"}, env: map[string]string{"NATS_URL": "c:1", "NATS_CREDS": "no", "XDG_CONFIG_HOME": selected},
			is: "nats://a:1",
		},
		"then context":       {cfg: Config{Context: "b"}, env: map[string]string{"NATS_URL": "c:1", "XDG_CONFIG_HOME": selected}, is: `NATS context "b"`},
		"then NATS_URL":      {env: map[string]string{"NATS_URL": "c:1,tls://d:2", "XDG_CONFIG_HOME": selected}, is: "nats://c:1,tls://d:2"},
		"with NATS_CREDS":    {env: map[string]string{"NATS_URL": "c:1", "NATS_CREDS": creds}, is: "nats://c:1", creds: creds},
		"then the selected":  {env: map[string]string{"XDG_CONFIG_HOME": selected, "NATS_CREDS": "no"}, is: `NATS context "prod"`},
		"else loopback":      {cfg: Config{Local: "127.0.0.1:4222"}, env: map[string]string{"XDG_CONFIG_HOME": none}, is: "127.0.0.1:4222", local: true},
		"secrets are hidden": {cfg: Config{Server: "nats://u:p@a:1, tls://token@b"}, is: "nats://a:1,tls://b"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tc.cfg.Getenv = func(name string) string { return tc.env[name] }
			target, err := Resolve(tc.cfg)
			if err != nil {
				t.Fatal(err)
			}
			if target.String() != tc.is || target.Local() != tc.local || target.cfg.Login.Creds != tc.creds {
				t.Errorf("target is %s (local %v, creds %q), want %s (local %v, creds %q)",
					target, target.Local(), target.cfg.Login.Creds, tc.is, tc.local, tc.creds)
			}
		})
	}
}

func TestWrongTargetsAreKnownWithoutAServer(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		cfg  Config
		says string
	}{
		{Config{Server: "http://a:1"}, `unknown scheme "http"`},
		{Config{Server: "nats://u:secret@a:port"}, `invalid server URL "nats://a:port"`},
		{Config{Server: "nats://"}, "names no host"},
		{Config{Server: "a:1,"}, "names no host"},
		{Config{Server: "a:1", Login: Login{Creds: "/nosuch/file"}}, "/nosuch/file"},
	} {
		_, err := Resolve(tc.cfg)
		if !errors.Is(err, job.ErrInvalid) || !strings.Contains(err.Error(), tc.says) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%+v: error %v, want one that is invalid and says %q", tc.cfg, err, tc.says)
		}
	}
}

func TestReconnectDelayIsShortAndJittered(t *testing.T) {
	t.Parallel()
	for n := range 100 {
		if d := (Target{local: true}).delay(n); d < 50*time.Millisecond || d > 250*time.Millisecond {
			t.Errorf("delay %d on loopback is %v, want 50 to 250 ms", n, d)
		}
		if d := (Target{}).delay(n); d < 50*time.Millisecond || d > 2*time.Second {
			t.Errorf("delay %d is %v, want 50 ms to 2 s", n, d)
		}
	}
}

// A node repeats what it is not permitted to do, since an operator may correct its login.
func TestErrorThatIsReportedAgainAndAgainIsLoggedOnceAMinute(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var log lockedBuffer
		w := newWatcher(log.logger(), "somewhere")
		for i := range 120 { // seconds
			w.asyncError(nil, nil, errors.New("not permitted: one"))
			w.asyncError(nil, nil, fmt.Errorf("not permitted: %d", i))
			time.Sleep(time.Second)
		}
		if n := strings.Count(log.buf.String(), "not permitted: one"); n < 2 || n > 3 { // it may be forgotten once among so many
			t.Errorf("one error was logged %d times in two minutes", n)
		}
		if n := strings.Count(log.buf.String(), "NATS reports an error"); n < 122 {
			t.Errorf("%d errors were logged, want each new one", n)
		}
	})
}

// awayLink is a connection that tries to reconnect.
type awayLink struct {
	back atomic.Bool
	why  atomic.Pointer[error]
}

func (l *awayLink) IsClosed() bool       { return false }
func (l *awayLink) IsReconnecting() bool { return !l.back.Load() }
func (l *awayLink) LastError() error {
	if why := l.why.Load(); why != nil {
		return *why
	}
	return nil
}

// The client reports no handshake that fails.
func TestLogSaysEachMinuteWhyTheServerIsStillAway(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var log lockedBuffer
		w, nc := newWatcher(log.logger(), "somewhere"), &awayLink{}
		reminders := func(since time.Duration, why string) {
			t.Helper()
			time.Sleep(since)
			synctest.Wait()
			if text := log.String(); strings.Count(text, "still waiting") != 1 || !strings.Contains(text, why) {
				t.Errorf("want one reminder that says %q:\n%s", why, text)
			}
			log.mu.Lock()
			log.buf.Reset()
			log.mu.Unlock()
		}
		w.disconnected(nc, errors.New("EOF"))
		w.stillAway(nil, errors.New("connection refused"))
		reminders(remindFirst, "connection refused")
		unknown := errors.New("unknown authority")
		nc.why.Store(&unknown)
		reminders(remindEvery, "unknown authority")
		reminders(remindEvery, "for=2m10s")
		nc.back.Store(true)
		time.Sleep(10 * remindEvery)
		if text := log.String(); text != "" {
			t.Errorf("the connection is back: %s", text)
		}
	})
}

type lockedBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *lockedBuffer) logger() *slog.Logger { return slog.New(slog.NewTextHandler(b, nil)) }

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}
