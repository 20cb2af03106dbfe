package connect

import (
	"cmp"
	"context"
	"io"
	"net"
	"testing"
	"testing/synctest"
	"time"
)

// lateServer answers the handshake of a client: an INFO and a PONG, each late.
type lateServer struct {
	late time.Duration
	says string // instead of PONG
}

func (s lateServer) Dial(string, string) (net.Conn, error) {
	client, server := net.Pipe()
	go func() {
		defer server.Close()
		gone := make(chan struct{})
		go func() { defer close(gone); _, _ = io.Copy(io.Discard, server) }()
		for _, line := range []string{`INFO {"server_id":"A","version":"2.12.0","headers":true,"max_payload":1048576}`, cmp.Or(s.says, "PONG")} {
			select {
			case <-time.After(s.late):
				_, _ = io.WriteString(server, line+"\r\n")
			case <-gone:
				return
			}
		}
		<-gone
	}()
	return client, nil
}

func TestHandshakeGetsMoreTimeWhileTheServerIsSlow(t *testing.T) {
	t.Parallel()
	for late, want := range map[time.Duration]struct{ attempts int }{
		10 * time.Millisecond: {1}, time.Second: {1}, 1600 * time.Millisecond: {2}, 5 * time.Second: {3}, 11 * time.Second: {4},
	} {
		synctest.Test(t, func(t *testing.T) {
			target := target(t, Config{Server: "127.0.0.1:4222", Dialer: lateServer{late: late}})
			for attempt := 1; ; attempt++ {
				conn, err := target.dial()
				if err == nil {
					conn.Close()
					if attempt != want.attempts {
						t.Errorf("%v late: connected at attempt %d, want %d", late, attempt, want.attempts)
					}
					break
				}
				if attempt == want.attempts {
					t.Fatalf("%v late: attempt %d: %v", late, attempt, err)
				}
			}
			if conn, err := target.dial(); err != nil {
				t.Errorf("%v late: the next connection: %v", late, err)
			} else {
				conn.Close()
			}
		})
	}
}

// A frozen server costs little while another one answers at once.
func TestHandshakeLimitFallsWhenAServerAnswersAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newPatience(lateServer{late: time.Hour})
		for range 3 {
			conn, err := p.Dial("tcp", "")
			if err != nil {
				t.Fatal(err)
			}
			_ = conn.SetDeadline(time.Now().Add(mostHandshake))
			_, _ = conn.Read(make([]byte, 1))
			_ = conn.Close()
		}
		if got := p.now(); got != mostHandshake {
			t.Errorf("after three handshakes without an answer the limit is %v, want %v", got, mostHandshake)
		}
		p.dialer = lateServer{}
		conn, err := p.Dial("tcp", "")
		if err != nil {
			t.Fatal(err)
		}
		_ = conn.SetDeadline(time.Now().Add(mostHandshake))
		_, _ = conn.Read(make([]byte, 1))
		_ = conn.SetDeadline(time.Time{})
		_, _ = conn.Read(make([]byte, 1))
		_ = conn.Close()
		if got := p.now(); got != leastHandshake {
			t.Errorf("after one that succeeded at once it is %v, want %v", got, leastHandshake)
		}
	})
}

func TestAwaitReachesAServerWhoseAnswersTakeFiveSeconds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		conn, err := target(t, Config{Server: "127.0.0.1:4222", Dialer: lateServer{late: 5 * time.Second}}).Await(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		conn.Close()
		if took := time.Since(began); took > 30*time.Second {
			t.Errorf("connected after %v, want at most 30s", took)
		}
	})
}

// servers is a dialer of several servers, by address.
type servers map[string]lateServer

func (s servers) Dial(network, address string) (net.Conn, error) {
	return s[address].Dial(network, address)
}

func TestRefusalOfOneServerTakesNoTimeFromASlowOneBesideIt(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		target := target(t, Config{Server: "127.0.0.1:4222,127.0.0.1:4223", Dialer: servers{
			"127.0.0.1:4222": {late: 5 * time.Second}, "127.0.0.1:4223": {says: "-ERR 'Authorization Violation'"},
		}})
		for attempt := 1; ; attempt++ {
			conn, err := target.dial()
			if err == nil {
				conn.Close()
				return
			}
			if attempt == 3 {
				t.Fatalf("attempt %d: %v", attempt, err)
			}
		}
	})
}

func TestHandshakeOfTLSBeforeThatOfAWebSocketIsLimited(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		target := target(t, Config{Server: "wss://127.0.0.1:443", Dialer: lateServer{late: time.Hour}})
		for _, want := range []time.Duration{leastHandshake, 2 * leastHandshake} {
			began := time.Now()
			conn, err := target.dial()
			if err == nil {
				conn.Close()
				t.Fatal("connected to a silent server")
			}
			if took := time.Since(began); took != want {
				t.Errorf("gave up after %v, want %v: %v", took, want, err)
			}
		}
	})
}
