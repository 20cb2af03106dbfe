package embed

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/cronce-io/cronce/internal/lab/filetest"
	"github.com/cronce-io/cronce/internal/lab/natstest"
)

func TestKilledAndStoppedServersAreTakenOver(t *testing.T) {
	t.Parallel()
	listen, store := natstest.FreeAddress(t), t.TempDir()
	serving := startProcess(t, listen, store)
	if said := serving.first(t); said != "embedded" {
		t.Fatalf("the first process says %q", said)
	}
	var others []*process
	join := func() {
		p := startProcess(t, listen, store)
		if said := p.first(t); said != "joined" {
			t.Fatalf("a later process says %q", said)
		}
		others = append(others, p)
	}
	join()
	join()
	js := connect(t, "nats://"+listen)
	if _, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "S", Subjects: []string{"s"}}); err != nil {
		t.Fatal(err)
	}
	acked := 0
	publishOne := func() {
		t.Helper()
		publish(t, js)
		acked++
	}
	ends := []struct {
		name string
		end  func(p *process)
	}{
		{"kill", func(p *process) { p.kill(t) }},
		{"stop", func(p *process) { p.stop() }},
		{"kill", func(p *process) { p.kill(t) }},
	}
	for _, e := range ends {
		for range 50 {
			publishOne()
		}
		e.end(serving)
		began := time.Now()
		serving, others = successor(t, others...)
		publishOne()
		t.Logf("%s: %d writes later, after %v", e.name, acked, time.Since(began))
		join()
	}
	stream, err := js.Stream(t.Context(), "S")
	if err != nil {
		t.Fatal(err)
	}
	if n := int(stream.CachedInfo().State.Msgs); n < acked {
		t.Errorf("%d messages, want the %d that were acknowledged", n, acked)
	}
	if h, err := readHolder(store); err != nil || h.PID != serving.Process.Pid || h.Listen != listen {
		t.Errorf("the lock file names %+v, %v: want process %d", h, err, serving.Process.Pid)
	}
}

// publish repeats a write until it is acknowledged.
func publish(t *testing.T, js jetstream.JetStream) {
	t.Helper()
	natstest.Eventually(t, "a write that is acknowledged", func() bool {
		_, err := js.Publish(t.Context(), "s", nil)
		return err == nil
	})
}

func TestJoinOfManyAtOnceEmbedsExactlyOnce(t *testing.T) {
	t.Parallel()
	for round := range 5 {
		listen, store := natstest.FreeAddress(t), filepath.Join(t.TempDir(), "new")
		var processes []*process
		for range 4 {
			processes = append(processes, startProcess(t, listen, store))
		}
		embedded := 0
		for _, p := range processes {
			switch said := p.first(t); said {
			case "embedded":
				embedded++
			case "joined":
			default:
				t.Errorf("process %d says %q", p.Process.Pid, said)
			}
		}
		if embedded != 1 {
			t.Errorf("round %d: %d processes embed, want 1", round, embedded)
		}
		for _, p := range processes {
			p.kill(t)
		}
	}
}

// The server that the process had joined ends, and before the process has connected to wait for that, another
// one listens on its address.
func TestAForeignServerThatTookTheAddressIsNotAwaited(t *testing.T) {
	t.Parallel()
	addr, end := foreignServer(t)
	defer end()
	var log lockedBuffer
	cfg, err := Config{Listen: addr, Store: t.TempDir(), Logger: slog.New(slog.NewTextHandler(&log, nil))}.withDefaults()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	m := &Member{cfg: cfg}
	m.standBy(ctx, info{Name: namePrefix + "ended"})
	if ctx.Err() != nil || m.serves() || !strings.Contains(log.String(), "cronce did not start it") {
		t.Errorf("stood by until %v; the log:\n%s", ctx.Err(), &log)
	}
}

func TestForeignServersAreNeverReplaced(t *testing.T) {
	t.Parallel()
	for name, start := range map[string]func(t *testing.T) (string, func()){
		"another program's nats-server": foreignServer,
		"ours, on another store": func(t *testing.T) (string, func()) {
			s := startServer(t, Config{Listen: "127.0.0.1:0", Store: t.TempDir()})
			return s.cfg.Listen, func() { s.Close() }
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			addr, end := start(t)
			var log lockedBuffer
			m, err := JoinOrStart(t.Context(), Config{Listen: addr, Store: t.TempDir(), Logger: slog.New(slog.NewTextHandler(&log, nil))})
			if err != nil {
				t.Fatal(err)
			}
			defer m.Close()
			if !strings.Contains(log.String(), "level=WARN msg=\"joined the NATS server already running here; ") {
				t.Errorf("joining logs no warning:\n%s", &log)
			}
			end()
			<-m.done // no process stands by
			if _, err := probe(t.Context(), addr); m.serves() || !errors.Is(err, errAbsent) {
				t.Errorf("a server still listens on %s: %v", addr, err)
			}
		})
	}
}

func TestJoinOrStartSaysWhyItCannot(t *testing.T) {
	t.Parallel()
	store := t.TempDir()
	s := startServer(t, Config{Listen: "127.0.0.1:0", Store: store})
	file := filepath.Join(t.TempDir(), "file")
	filetest.Write(t, file, "")
	for name, tc := range map[string]struct {
		cfg  Config
		says []string
	}{
		"something else": {Config{Listen: greeter(t), Store: t.TempDir()}, []string{"is in use by something that is not a NATS server"}},
		"silence":        {Config{Listen: silent(t), Store: t.TempDir()}, []string{"does not answer like a NATS server"}},
		"store serves elsewhere": {
			Config{Listen: natstest.FreeAddress(t), Store: store},
			[]string{fmt.Sprintf("store %s is in use by process %d, which serves on %s", store, os.Getpid(), s.cfg.Listen)},
		},
		"store under a file": {Config{Listen: natstest.FreeAddress(t), Store: filepath.Join(file, "x")}, []string{"cannot use store"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := JoinOrStart(t.Context(), tc.cfg)
			wantError(t, err, tc.says...)
		})
	}
}

func TestMemberInOneProcess(t *testing.T) {
	t.Parallel()
	cfg := Config{Listen: natstest.FreeAddress(t), Store: t.TempDir()}
	first, err := JoinOrStart(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	second, err := JoinOrStart(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	if !first.serves() || second.serves() || first.URL() != second.URL() {
		t.Fatalf("first embeds %v, second %v", first.serves(), second.serves())
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	select {
	case <-second.done:
	case <-time.After(natstest.Patience):
	}
	if !second.serves() {
		t.Error("the second did not take over")
	}
	if err := second.Close(); err != nil {
		t.Error(err)
	}
	// A client that connects just before the end is reset, not refused.
	natstest.Eventually(t, "no server to listen after both closed", func() bool {
		_, err := probe(t.Context(), cfg.Listen)
		return errors.Is(err, errAbsent)
	})
}

// The probe of the server succeeds, because it greets a client before it refuses it.
func TestStandbyWaitsWhileTheServerRefusesItsConnection(t *testing.T) {
	t.Parallel()
	store, listen := t.TempDir(), natstest.FreeAddress(t)
	host, port, err := splitAddress(listen)
	if err != nil {
		t.Fatal(err)
	}
	const name = namePrefix + "full"
	o := &server.Options{ServerName: name, Host: host, Port: port, MaxConn: 1, NoSigs: true, NoLog: true}
	ns, err := server.NewServer(o)
	if err != nil {
		t.Fatal(err)
	}
	ns.Start()
	defer stop(ns)
	other := natstest.Connect(t, "nats://"+listen)
	lock, err := lockStore(store)
	if err != nil {
		t.Fatal(err)
	}
	if err := lock.describe(holder{os.Getpid(), listen, name}); err != nil {
		t.Fatal(err)
	}
	var log lockedBuffer
	m, err := JoinOrStart(t.Context(), Config{Listen: listen, Store: store, Logger: slog.New(slog.NewTextHandler(&log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	natstest.Eventually(t, "more attempts to connect", func() bool {
		v, err := ns.Varz(nil)
		return err == nil && v.TotalConnections >= 8
	})
	if text := log.String(); strings.Contains(text, "stopped") || strings.Count(text, "refuses the connection") != 1 {
		t.Errorf("while the server refuses the connection, the log has\n%s", text)
	}
	other.Close()
	natstest.Eventually(t, "the connection of the standby", func() bool { return ns.NumClients() == 1 })
	stop(ns)
	if err := lock.release(); err != nil {
		t.Fatal(err)
	}
	select {
	case <-m.done:
	case <-time.After(natstest.Patience):
	}
	if !m.serves() {
		t.Errorf("the standby did not take over:\n%s", &log)
	}
	if err := m.Close(); err != nil {
		t.Error(err)
	}
}

// The holder of the lock may have many files to recover before it listens.
func TestJoinWaitsForTheHolderOfTheStoreToListen(t *testing.T) {
	t.Parallel()
	cfg := Config{Listen: natstest.FreeAddress(t), Store: t.TempDir()}
	lock, err := lockStore(cfg.Store)
	if err != nil {
		t.Fatal(err)
	}
	if err := lock.describe(holder{os.Getpid(), cfg.Listen, namePrefix + "x"}); err != nil {
		t.Fatal(err)
	}
	impatient, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if _, err := JoinOrStart(impatient, cfg); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("while the store is held: %v, want to wait until the context ends", err)
	}
	if err := lock.release(); err != nil {
		t.Fatal(err)
	}
	m, err := JoinOrStart(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	if !m.serves() {
		t.Error("the free store is not served")
	}
	if err := m.Close(); err != nil {
		t.Error(err)
	}
}
