package listener_test

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"io"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cronce-io/cronce/internal/lab/filetest"
	"github.com/cronce-io/cronce/internal/lab/natstest"
	"github.com/cronce-io/cronce/internal/web/listener"
)

// output is a log that several goroutines write.
type output struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.String()
}

// serve runs a server until stop is called, which returns the error of Serve.
func serve(t *testing.T, cfg listener.Config, h http.Handler, closing func()) (url string, stop func() error) {
	t.Helper()
	cfg.Addr = "127.0.0.1:0"
	s, err := listener.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(ctx, h, closing) }()
	once := sync.OnceValue(func() error { cancel(); return <-ended })
	t.Cleanup(func() { _ = once() })
	return s.URL(), once
}

func TestServeEndsStreamsAndFinishesOrders(t *testing.T) {
	t.Parallel()
	began, closing, finish := make(chan bool, 2), make(chan struct{}), make(chan struct{})
	mux := http.NewServeMux()
	mux.HandleFunc("/stream", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintln(w, "event")
		_ = http.NewResponseController(w).Flush()
		began <- true
		<-closing
	})
	mux.HandleFunc("/order", func(w http.ResponseWriter, r *http.Request) {
		listener.SetUser(r.Context(), "alice")
		began <- true
		<-finish
		w.WriteHeader(http.StatusCreated)
		fmt.Fprint(w, "done")
	})
	log := &output{}
	url, stop := serve(t, listener.Config{Logger: slog.New(slog.NewTextHandler(log, nil)), Grace: natstest.Patience}, mux, func() { close(closing); close(finish) })
	answers := make(chan string, 2)
	for _, path := range []string{"/stream", "/order?secret=code"} {
		go func() {
			w, err := http.Get(url + path)
			if err != nil {
				answers <- err.Error()
				return
			}
			defer w.Body.Close()
			body, err := io.ReadAll(w.Body)
			answers <- fmt.Sprint(w.StatusCode, strings.TrimSpace(string(body)), err)
		}()
	}
	<-began
	<-began
	if err := stop(); err != nil {
		t.Error(err)
	}
	got := []string{<-answers, <-answers}
	for _, want := range []string{"200event<nil>", "201done<nil>"} {
		if got[0] != want && got[1] != want {
			t.Errorf("answers %q, want %q among them", got, want)
		}
	}
	if text := log.String(); !strings.Contains(text, "method=GET path=/order status=201 bytes=4") || !strings.Contains(text, "user=alice") || strings.Contains(text, "secret") {
		t.Errorf("log:\n%s", text)
	}
	if _, err := http.Get(url); err == nil {
		t.Error("the address still answers")
	}
}

func TestHeadersAreBounded(t *testing.T) {
	t.Parallel()
	url, _ := serve(t, listener.Config{}, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}), func() {})
	r, _ := http.NewRequest(http.MethodGet, url, nil)
	r.Header.Set("X-Large", strings.Repeat("x", 100<<10))
	w, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	w.Body.Close()
	if w.StatusCode != http.StatusRequestHeaderFieldsTooLarge {
		t.Errorf("status %d", w.StatusCode)
	}
}

// writePair writes a certificate with this serial number.
func writePair(t *testing.T, serial int64, cert, key string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	about := &x509.Certificate{SerialNumber: big.NewInt(serial), NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}}
	der, err := x509.CreateCertificate(rand.Reader, about, about, &private.PublicKey, private)
	if err != nil {
		t.Fatal(err)
	}
	pkcs, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	for path, block := range map[string]*pem.Block{cert: {Type: "CERTIFICATE", Bytes: der}, key: {Type: "PRIVATE KEY", Bytes: pkcs}} {
		filetest.Write(t, path, pem.EncodeToMemory(block))
	}
}

func TestCertificateIsReadAgainWhenItsFilesChange(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	cert, key := filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	writePair(t, 1, cert, key)
	url, _ := serve(t, listener.Config{Cert: cert, Key: key}, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}), func() {})
	serial := func() int64 {
		c, err := tls.Dial("tcp", strings.TrimPrefix(url, "https://"), &tls.Config{InsecureSkipVerify: true}) // only the serial number counts
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		return c.ConnectionState().PeerCertificates[0].SerialNumber.Int64()
	}
	if n := serial(); n != 1 {
		t.Errorf("first certificate has the number %d", n)
	}
	writePair(t, 2, cert, key)
	for ends := time.Now().Add(natstest.Patience); serial() != 2; {
		if time.Now().After(ends) {
			t.Fatal("the new certificate is not used")
		}
	}
}

func TestListenReportsWhatIsWrong(t *testing.T) {
	t.Parallel()
	used, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer used.Close()
	for _, tc := range []struct {
		cfg  listener.Config
		says string
	}{
		{listener.Config{Addr: used.Addr().String()}, "address already in use: choose another"},
		{listener.Config{Addr: "127.0.0.1:0", Cert: "c"}, "need each other"},
		{listener.Config{Addr: "127.0.0.1:0", Cert: "/nowhere", Key: "/nowhere"}, "invalid --http-cert or --http-key: open /nowhere"},
	} {
		if s, err := listener.New(tc.cfg); err == nil || !strings.Contains(err.Error(), tc.says) {
			t.Errorf("%+v: %v, %v", tc.cfg, s, err)
		}
	}
}
