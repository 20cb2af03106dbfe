package connect

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"math/big"
	"net"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"go.uber.org/goleak"

	"github.com/cronce-io/cronce/internal/lab/filetest"
	"github.com/cronce-io/cronce/internal/lab/natstest"
	"github.com/cronce-io/cronce/job"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// unreachable is an address on which no server listens.
const unreachable = "127.0.0.1:1"

// target resolves cfg in an empty environment.
func target(t *testing.T, cfg Config) Target {
	t.Helper()
	if cfg.Getenv == nil {
		dir := t.TempDir()
		cfg.Getenv = func(name string) string {
			if name == "XDG_CONFIG_HOME" {
				return dir
			}
			return ""
		}
	}
	target, err := Resolve(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return target
}

func TestFailedConnectionsSayWhy(t *testing.T) {
	t.Parallel()
	locked := natstest.Run(t, func(o *server.Options) { o.Username, o.Password = "u", "right" })
	plain := natstest.Run(t, func(o *server.Options) { o.JetStream = false })
	secure := natstest.Run(t, func(o *server.Options) { o.TLSConfig, o.TLS = selfSigned(t), true })
	withoutAccount := natstest.Run(t, func(o *server.Options) {
		poor := server.NewAccount("POOR")
		o.Accounts = []*server.Account{poor}
		o.Users = []*server.User{{Username: "poor", Password: "p", Account: poor}}
	})
	full := natstest.Run(t, func(o *server.Options) { o.MaxConn = 1 })
	full.Conn()
	tlsFirst := natstest.Run(t, func(o *server.Options) { o.TLSConfig, o.TLS, o.TLSHandshakeFirst = selfSigned(t), true, true })
	addr := func(s *natstest.Server) string { return s.Addr().String() }

	for name, tc := range map[string]struct {
		cfg  Config
		says []string
		is   error
	}{
		"refused":                {Config{Server: unreachable}, []string{"nothing answers on nats://" + unreachable}, nats.ErrNoServers},
		"refused on loopback":    {Config{Local: unreachable}, []string{"nothing answers on " + unreachable}, nats.ErrNoServers},
		"wrong password":         {Config{Server: "nats://u:secret@" + addr(locked)}, []string{"nats://" + addr(locked) + " refuses the credentials"}, nats.ErrAuthorization},
		"no password":            {Config{Server: addr(locked)}, []string{"refuses the credentials"}, nats.ErrAuthorization},
		"no JetStream":           {Config{Server: addr(plain)}, []string{"runs without JetStream"}, nil},
		"not for this account":   {Config{Server: "nats://poor:p@" + addr(withoutAccount)}, []string{"not for this account"}, nil},
		"certificate not known":  {Config{Server: "tls://" + addr(secure)}, []string{"no agreement on TLS with tls://" + addr(secure)}, nil},
		"TLS not offered":        {Config{Server: "tls://" + addr(plain)}, []string{"no agreement on TLS"}, nats.ErrSecureConnWanted},
		"no more connections":    {Config{Server: addr(full)}, []string{"closes new connections", "max_connections"}, nil},
		"TLS first":              {Config{Server: "tls://" + addr(tlsFirst)}, []string{"expects TLS before its greeting", "--tls-first", "CRONCE_TLS_FIRST"}, nil},
		"TLS first of a context": {Config{Context: contextFile(t, fmt.Sprintf(`{"url":"nats://%s"}`, addr(tlsFirst)))}, []string{"expects TLS before its greeting", "tls_first"}, nil},
		"TLS first, unasked for": {Config{Server: addr(plain), TLSFirst: true}, []string{"no agreement on TLS"}, nil},
		"no WebSocket":           {Config{Server: "ws://" + addr(plain)}, []string{"ws://" + addr(plain) + " does not speak WebSocket: use nats://"}, nil},
		"silent":                 {Config{Server: silent(t)}, []string{"does not answer within 3s"}, nil},
		"context of a server that is away": {
			Config{Context: contextFile(t, fmt.Sprintf(`{"url":"nats://a:secret@%s"}`, unreachable))},
			[]string{"nothing answers on nats://" + unreachable + " (NATS context "}, nats.ErrNoServers,
		},
		"context that is not there": {Config{Context: "nosuch"}, []string{`NATS context "nosuch"`, "unknown context"}, job.ErrInvalid},
		"context that is broken":    {Config{Context: contextFile(t, `{`)}, []string{"NATS context"}, job.ErrInvalid},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			nc, err := target(t, tc.cfg).Connect(t.Context())
			if err == nil {
				nc.Close()
				t.Fatal("connected")
			}
			for _, part := range tc.says {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("error %q does not say %q", err, part)
				}
			}
			if strings.Contains(err.Error(), "secret") || strings.Contains(err.Error(), "\n") {
				t.Errorf("error %q shows a password, or has more than one line", err)
			}
			if tc.is != nil && !errors.Is(err, tc.is) {
				t.Errorf("error %q is not %q", err, tc.is)
			}
		})
	}
}

func TestConnectionBeginsWithTLSIfItIsToldTo(t *testing.T) {
	t.Parallel()
	secure := selfSigned(t)
	first := natstest.Run(t, func(o *server.Options) { o.TLSConfig, o.TLS, o.TLSHandshakeFirst = secure, true, true })
	ca := filepath.Join(t.TempDir(), "ca.pem")
	filetest.Write(t, ca, string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: secure.Certificates[0].Certificate[0]})))
	nc, err := target(t, Config{Server: "tls://" + first.Addr().String(), TLSFirst: true, Login: Login{CA: ca}}).Connect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	nc.Close()
	// Waiting does not help, so a node says so at once.
	if _, err := target(t, Config{Server: first.Addr().String()}).Await(t.Context()); err == nil || !strings.Contains(err.Error(), "--tls-first") {
		t.Errorf("Await: %v", err)
	}
}

func TestConnectionsThatWork(t *testing.T) {
	t.Parallel()
	open := natstest.Run(t)
	locked := natstest.Run(t, func(o *server.Options) { o.Username, o.Password = "u", "right" })
	for name, cfg := range map[string]Config{
		"several servers, the first is away": {Server: unreachable + "," + open.ClientURL()},
		"password in the URL":                {Server: "nats://u:right@" + locked.Addr().String()},
		"context":                            {Context: contextFile(t, fmt.Sprintf(`{"url":%q,"user":"u","password":"right"}`, locked.ClientURL()))},
		"loopback default":                   {Local: open.Addr().String()},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			nc, err := target(t, cfg).Connect(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			nc.Close()
		})
	}
}

// If a node starts before its server, it logs what it waits for. It continues when the server
// starts, or ends with its context. An error that waiting cannot fix is returned at once.
func TestAServerThatIsNotThereYetIsWaitedFor(t *testing.T) {
	t.Parallel()
	log := make(chan string, 100)
	addr := natstest.FreeAddress(t)
	waiting := target(t, Config{Server: addr, Logger: slog.New(slog.NewTextHandler(lines(log), nil))})
	ctx, cancel := context.WithCancelCause(t.Context())
	stopped := errors.New("stopped")
	ended := make(chan error, 1)
	go func() { _, err := waiting.Await(ctx); ended <- err }()
	if said := <-log; !strings.Contains(said, "waiting for the NATS server") || !strings.Contains(said, addr) {
		t.Errorf("it says %q", said)
	}
	cancel(stopped)
	if err := <-ended; !errors.Is(err, stopped) {
		t.Errorf("it ends with %v", err)
	}

	connected := make(chan *Conn, 1)
	go func() {
		nc, err := waiting.Await(t.Context())
		if err != nil {
			t.Error(err)
		}
		connected <- nc
	}()
	<-log
	_, port, _ := net.SplitHostPort(addr)
	natstest.Run(t, func(o *server.Options) { o.Port, _ = strconv.Atoi(port) })
	if nc := <-connected; nc != nil {
		nc.Close()
	}
	if said := <-log; !strings.Contains(said, "connected to NATS") {
		t.Errorf("it says %q", said)
	}

	locked := natstest.Run(t, func(o *server.Options) { o.Username, o.Password = "u", "right" })
	if _, err := target(t, Config{Server: locked.Addr().String()}).Await(t.Context()); !errors.Is(err, nats.ErrAuthorization) {
		t.Errorf("a login that is refused: %v", err)
	}
}

// lines is a log whose lines a test can wait for.
type lines chan string

func (l lines) Write(p []byte) (int, error) { l <- string(p); return len(p), nil }

// A write must not arrive after its caller has given up. A message published while the
// server is away fails at once, and never arrives.
func TestNothingIsBufferedWhileTheServerIsAway(t *testing.T) {
	t.Parallel()
	s := natstest.Run(t)
	nc, err := target(t, Config{Server: s.ClientURL()}).Connect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	s.Stop()
	natstest.Eventually(t, "the connection is lost", nc.IsReconnecting)
	if err := nc.Publish("late", nil); !errors.Is(err, nats.ErrReconnectBufExceeded) {
		t.Errorf("publish while the server is away: %v", err)
	}
	s.Start()
	natstest.Eventually(t, "the connection is back", nc.IsConnected)
}

// Credentials are rotated, and servers start before their accounts exist.
func TestRefusedLoginsDoNotEndAnEstablishedConnection(t *testing.T) {
	t.Parallel()
	addr := natstest.FreeAddress(t)
	_, portText, _ := net.SplitHostPort(addr)
	port, err := strconv.Atoi(portText)
	if err != nil {
		t.Fatal(err)
	}
	start := func(password string) *natstest.Server {
		return natstest.Run(t, func(o *server.Options) { o.Port, o.Username, o.Password = port, "u", password })
	}
	s := start("right")
	var log lockedBuffer
	nc, err := target(t, Config{Server: "nats://u:right@" + addr, Logger: log.logger()}).Connect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	refusals := make(chan struct{}, 100)
	asyncError := nc.ErrorHandler()
	nc.SetErrorHandler(func(nc *nats.Conn, sub *nats.Subscription, err error) {
		asyncError(nc, sub, err)
		if errors.Is(err, nats.ErrAuthorization) {
			refusals <- struct{}{}
		}
	})
	s.Stop()
	s = start("other")
	for range 3 { // nats.go alone closes the connection after the second
		select {
		case <-refusals:
		case <-time.After(natstest.Patience):
			t.Fatal("the login is not tried again")
		}
	}
	s.Stop()
	start("right")
	natstest.Eventually(t, "the connection is back", nc.IsConnected)
	const refused = "the NATS server refuses the credentials"
	if n := strings.Count(log.String(), refused); n != 1 {
		t.Errorf("the log says %d times that %s, want once:\n%s", n, refused, &log)
	}
}

func contextFile(t *testing.T, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "ctx.json")
	filetest.Write(t, path, content)
	return path
}

// A connection attempt ends with its context even if the server does not answer.
func TestConnectEndsWithItsContext(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	stop := errors.New("stop")
	ctx, cancel := context.WithCancelCause(t.Context())
	accepted := make(chan net.Conn, 1)
	go func() {
		conn, err := l.Accept()
		if err != nil {
			t.Error(err)
		}
		accepted <- conn
		cancel(stop)
	}()
	began := time.Now()
	_, err = target(t, Config{Server: l.Addr().String()}).Connect(ctx)
	if took := time.Since(began); !errors.Is(err, stop) || took >= leastHandshake {
		t.Errorf("got %v after %v, want %v before the %v that a server may take", err, took, stop, leastHandshake)
	}
	if conn := <-accepted; conn != nil {
		conn.Close()
	}
}

// silent returns the address of a listener that accepts connections and never answers.
func silent(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l.Addr().String()
}

func selfSigned(t *testing.T) *tls.Config {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	return &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}}
}
