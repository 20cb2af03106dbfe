package embed

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/cronce-io/cronce/internal/lab/filetest"
	"github.com/cronce-io/cronce/job"
)

func startServer(t *testing.T, cfg Config) *Server {
	t.Helper()
	s, err := Start(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// This test is not parallel: between its fork and its exec, a process that another test starts also
// holds the lock of the store.
func TestServerServesJetStreamAndKeepsItsFiles(t *testing.T) {
	store := filepath.Join(t.TempDir(), "a", "b")
	s := startServer(t, Config{Listen: "127.0.0.1:0", Store: store})
	js := connect(t, s.URL())
	if _, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "S", Subjects: []string{"s"}}); err != nil {
		t.Fatal(err)
	}
	if _, err := js.Publish(t.Context(), "s", nil); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(store); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("store is %v, %v: want a directory with mode 0700", info.Mode(), err)
	}
	if !s.nats.JetStreamConfig().SyncAlways {
		t.Error("writes are not synced")
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}

	again := startServer(t, Config{Listen: "127.0.0.1:0", Store: store})
	stream, err := connect(t, again.URL()).Stream(t.Context(), "S")
	if err != nil {
		t.Fatal(err)
	}
	if n := stream.CachedInfo().State.Msgs; n != 1 {
		t.Errorf("%d messages after a restart, want 1", n)
	}
}

func TestStartWarnsOfAStoreThatOthersMayWriteTo(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("os.FileInfo has no access lists on Windows")
	}
	for mode, warns := range map[os.FileMode]bool{0o700: false, 0o755: false, 0o777: true, 0o777 | os.ModeSticky: true} {
		var log bytes.Buffer
		store := filepath.Join(t.TempDir(), "store")
		if err := errors.Join(os.Mkdir(store, 0o700), os.Chmod(store, mode)); err != nil {
			t.Fatal(err)
		}
		startServer(t, Config{Listen: "127.0.0.1:0", Store: store, Logger: slog.New(slog.NewTextHandler(&log, nil))}).Close()
		if got := strings.Contains(log.String(), "others may write to the store"); got != warns {
			t.Errorf("a store with mode %v: warning: %v, want %v: %s", mode, got, warns, log.String())
		}
	}
}

func TestStartSaysWhoIsInTheWay(t *testing.T) {
	t.Parallel()
	store := t.TempDir()
	s := startServer(t, Config{Listen: "127.0.0.1:0", Store: store})
	file := filepath.Join(t.TempDir(), "file")
	filetest.Write(t, file, "")
	for name, tc := range map[string]struct {
		cfg  Config
		says []string
	}{
		"store in use": {
			Config{Listen: "127.0.0.1:0", Store: store},
			[]string{"store " + store + " is in use by process " + fmt.Sprint(os.Getpid()), s.cfg.Listen},
		},
		"port in use by NATS":           {Config{Listen: s.cfg.Listen, Store: t.TempDir()}, []string{"already answers on " + s.cfg.Listen}},
		"port in use by something else": {Config{Listen: greeter(t), Store: t.TempDir()}, []string{"is in use by something that is not a NATS server"}},
		"port in use by a silent one":   {Config{Listen: silent(t), Store: t.TempDir()}, []string{"does not answer like a NATS server"}},
		"store under a file":            {Config{Listen: "127.0.0.1:0", Store: filepath.Join(file, "store")}, []string{"cannot use store " + file, "--store"}},
		"foreign address":               {Config{Listen: "192.0.2.1:1", Store: filepath.Join(t.TempDir(), "new")}, []string{"cannot listen on 192.0.2.1:1: "}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := Start(t.Context(), tc.cfg)
			wantError(t, err, tc.says...)
		})
	}
}

func TestFailedStartLeavesNothingBehind(t *testing.T) {
	t.Parallel()
	store := filepath.Join(t.TempDir(), "new")
	if _, err := Start(t.Context(), Config{Listen: "192.0.2.1:1", Store: store}); err == nil {
		t.Fatal("listens on an address that is not ours")
	}
	if _, err := os.Stat(store); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the store was created: %v", err)
	}
}

func TestBadListenAddressIsKnownWithoutAServer(t *testing.T) {
	t.Parallel()
	for _, listen := range []string{"4222", "localhost", "127.0.0.1:nats", "127.0.0.1:70000", "::1:4222"} {
		err := Config{Listen: listen}.Validate()
		wantError(t, err, listen, "HOST:PORT")
		if !errors.Is(err, job.ErrInvalid) {
			t.Errorf("%v does not wrap job.ErrInvalid", err)
		}
	}
}

// connect returns a JetStream client that reconnects until a server is back.
func connect(t *testing.T, url string) jetstream.JetStream {
	t.Helper()
	nc, err := nats.Connect(url, nats.MaxReconnects(-1), nats.ReconnectWait(20e6), nats.ReconnectJitter(0, 0))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	return js
}

// greeter is a server of another protocol, in which the server speaks first.
func greeter(t *testing.T) string {
	return listen(t, func(c net.Conn) { fmt.Fprint(c, "220 mail.example ESMTP\r\n"); c.Close() })
}

// silent is a server of another protocol, in which the client speaks first.
func silent(t *testing.T) string { return listen(t, func(net.Conn) {}) }

func listen(t *testing.T, serve func(net.Conn)) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			defer c.Close()
			serve(c)
		}
	}()
	t.Cleanup(func() { l.Close(); <-done })
	return l.Addr().String()
}

// foreignServer is a NATS server that cronce did not start.
func foreignServer(t *testing.T) (addr string, end func()) {
	t.Helper()
	ns, err := server.NewServer(&server.Options{ServerName: "foreign", Host: "127.0.0.1", Port: -1, JetStream: true, StoreDir: t.TempDir(), NoSigs: true, NoLog: true})
	if err != nil {
		t.Fatal(err)
	}
	ns.Start()
	t.Cleanup(func() { stop(ns) })
	return ns.Addr().String(), func() { stop(ns) }
}

// The server itself would start, and leave each request about such a stream without an answer.
func TestServerRefusesTheStoreOfANewerVersion(t *testing.T) {
	t.Parallel()
	store := t.TempDir()
	dir := filepath.Join(store, "jetstream", "$G", "streams", "NEWER")
	if err := os.MkdirAll(filepath.Join(dir, "msgs"), 0o700); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"meta.inf": `{"name":"NEWER","subjects":["newer"],"retention":"limits","max_consumers":-1,"max_msgs":-1,"max_bytes":-1,"max_age":0,"max_msgs_per_subject":-1,"max_msg_size":-1,"discard":"old","storage":"file","num_replicas":1,"metadata":{"_nats.req.level":"99"},"created":"2026-11-28T00:00:00Z"}`,
		"meta.sum": "6e0c2a574219d52a", // the server's checksum of meta.inf
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	s, err := Start(t.Context(), Config{Listen: "127.0.0.1:0", Store: store})
	if err == nil {
		s.Close()
	}
	if err == nil || !strings.Contains(err.Error(), "newer version") || !strings.Contains(err.Error(), "NEWER") {
		t.Errorf("got %v, want an error that names the stream", err)
	}
	if _, err := os.Stat(filepath.Join(dir, "meta.inf")); err != nil {
		t.Errorf("the store has changed: %v", err)
	}
}
