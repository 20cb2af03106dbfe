package proxy

import (
	"bufio"
	"errors"
	"net"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// echo starts a server that sends back every line. received delivers the lines.
func echo(t *testing.T) (address string, received <-chan string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	lines := make(chan string, 100)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				for s := bufio.NewScanner(conn); s.Scan(); {
					lines <- s.Text()
					if _, err := conn.Write(append(s.Bytes(), '\r', '\n')); err != nil {
						return
					}
				}
			}()
		}
	}()
	t.Cleanup(func() { l.Close(); <-ended })
	return l.Addr().String(), lines
}

// through is a client of an echo, connected through a proxy.
type through struct {
	*testing.T
	proxy    *Proxy
	conn     net.Conn
	from     *bufio.Reader
	received <-chan string
}

func newThrough(t *testing.T) *through {
	t.Helper()
	address, received := echo(t)
	p, err := New()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	conn, err := Dialer(p.Address()).Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	c := &through{t, p, conn, bufio.NewReader(conn), received}
	c.say("hello")
	c.wantHeard("hello")
	c.wantAnswer("hello")
	return c
}

// patience bounds each wait. Only a test that hangs takes as long.
const patience = 4 * time.Minute

func (c *through) say(line string) {
	c.Helper()
	if _, err := c.conn.Write([]byte(line + "\r\n")); err != nil {
		c.Fatal(err)
	}
}

func (c *through) wantHeard(line string) {
	c.Helper()
	select {
	case got := <-c.received:
		if got != line {
			c.Fatalf("the server received %q, want %q", got, line)
		}
	case <-time.After(patience):
		c.Fatalf("the server has not received %q", line)
	}
}

func (c *through) wantAnswer(line string) {
	c.Helper()
	_ = c.conn.SetReadDeadline(time.Now().Add(patience))
	if got, err := c.from.ReadString('\n'); got != line+"\r\n" {
		c.Fatalf("answer %q, %v; want %q", got, err, line)
	}
}

// wantEnd wants the connection to end without another answer.
func (c *through) wantEnd() {
	c.Helper()
	_ = c.conn.SetReadDeadline(time.Now().Add(patience))
	got, err := c.from.ReadString('\n')
	if timeout, ok := err.(net.Error); got != "" || err == nil || ok && timeout.Timeout() {
		c.Fatalf("read %q, %v; want the end of the connection", got, err)
	}
}

func TestAProxyCutsConnections(t *testing.T) {
	t.Parallel()
	c := newThrough(t)
	c.proxy.Set(Fault{Cut: true})
	c.wantEnd()
}

func TestAProxyLosesAnswersAndThenTheConnection(t *testing.T) {
	t.Parallel()
	c := newThrough(t)
	c.proxy.Set(Fault{Deaf: true})
	c.say("one")
	c.wantHeard("one")
	c.proxy.Set(Fault{})
	c.wantEnd()
}

func TestAProxyLosesWhatTheClientSaysAndThenTheConnection(t *testing.T) {
	t.Parallel()
	c := newThrough(t)
	c.proxy.Set(Fault{Mute: true})
	c.say("one")
	c.proxy.Set(Fault{})
	c.wantEnd()
	if len(c.received) > 0 {
		t.Errorf("the server has received %q", <-c.received)
	}
}

func TestAProxyHoldsAnswersBack(t *testing.T) {
	t.Parallel()
	c := newThrough(t)
	c.proxy.Set(Fault{Hold: true})
	c.say("one")
	c.wantHeard("one")
	c.proxy.Set(Fault{})
	c.wantAnswer("one")
}

func TestAProxyIsSlow(t *testing.T) {
	t.Parallel()
	c := newThrough(t)
	c.proxy.Set(Fault{Delay: 100 * time.Millisecond, Late: 100 * time.Millisecond})
	began := time.Now()
	c.say("one")
	c.wantAnswer("one")
	if took := time.Since(began); took < 200*time.Millisecond {
		t.Errorf("there and back took %v, want 200ms at least", took)
	}
}

func TestADistanceStaysUnderEachFaultAndAfterIt(t *testing.T) {
	t.Parallel()
	c := newThrough(t)
	const trip = 100 * time.Millisecond
	c.proxy.SetDistance(Distance{RTT: trip})
	took := func() time.Duration {
		began := time.Now()
		c.say("one")
		c.wantAnswer("one")
		return time.Since(began)
	}
	if d := took(); d < trip {
		t.Errorf("there and back took %v, want %v at least", d, trip)
	}
	c.proxy.Lag(trip)
	if d := took(); d < 2*trip {
		t.Errorf("under a fault that delays answers by %v, there and back took %v, want %v at least", trip, d, 2*trip)
	}
	c.proxy.Heal()
	if d := took(); d < trip {
		t.Errorf("after the fault, there and back took %v, want %v at least", d, trip)
	}
}

func TestALinkCarriesNoMoreThanItsBandwidth(t *testing.T) {
	t.Parallel()
	c := newThrough(t)
	c.proxy.SetDistance(Distance{Bandwidth: 100_000})
	line := strings.Repeat("x", 999)
	began := time.Now()
	for range 50 { // 50 kB there and, beside it, 50 kB back
		c.say(line)
	}
	for range 50 {
		c.wantAnswer(line)
	}
	if d := time.Since(began); d < 400*time.Millisecond {
		t.Errorf("50 kB took %v at 100 kB/s, want some 500ms", d)
	}
}

func TestDistancesThatCannotBe(t *testing.T) {
	t.Parallel()
	for says, d := range map[string]Distance{"round trip of -1ms": {RTT: -time.Millisecond}, "round trip of 1m0s": {RTT: time.Minute}, "bandwidth of 10 bytes": {Bandwidth: 10}, "bandwidth of -1 bytes": {Bandwidth: -1}} {
		if err := d.Validate(); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%+v: %v, want %q", d, err, says)
		}
	}
	if err := Near.Validate(); err != nil {
		t.Error(err)
	}
}

func TestAProxyIsSlowToAnswerOnly(t *testing.T) {
	t.Parallel()
	c := newThrough(t)
	const late = 300 * time.Millisecond
	c.proxy.Set(Fault{Late: late})
	began := time.Now()
	c.say("one")
	c.wantHeard("one")
	c.wantAnswer("one")
	if took := time.Since(began); took < late {
		t.Errorf("the answer took %v, want %v at least", took, late)
	}
}

func TestAProxyDelaysEachMessageOfTheServer(t *testing.T) {
	t.Parallel()
	c := newThrough(t)
	const late, messages = 20 * time.Millisecond, 10
	c.proxy.Set(Fault{EachLate: late})
	began := time.Now()
	for range messages {
		c.say("MSG a")
	}
	for range messages {
		c.wantAnswer("MSG a")
	}
	if took := time.Since(began); took < messages*late {
		t.Errorf("%d messages took %v, want %v at least", messages, took, messages*late)
	}
}

func TestAProxyThatIsCloggedBlocksItsWriterAndLosesNothing(t *testing.T) {
	t.Parallel()
	c := newThrough(t)
	c.proxy.Set(Fault{Clogged: true})
	const lines = 1000
	text := strings.Repeat("x", 1000)
	all := strings.Repeat(text+"\r\n", lines)
	_ = c.conn.SetWriteDeadline(time.Now().Add(time.Second))
	n, err := c.conn.Write([]byte(all))
	if !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("a socket from which nothing is read took %d bytes: %v", n, err)
	}
	if len(c.received) > 0 {
		t.Fatal("the server has received something")
	}
	c.proxy.Set(Fault{})
	_ = c.conn.SetWriteDeadline(time.Time{})
	rest := make(chan error, 1)
	go func() {
		_, err := c.conn.Write([]byte(all[n:]))
		rest <- err
	}()
	for range lines {
		c.wantHeard(text)
		c.wantAnswer(text)
	}
	if err := <-rest; err != nil {
		t.Fatal(err)
	}
}

func TestAProxySeversBeforeAWrite(t *testing.T) {
	t.Parallel()
	c := newThrough(t)
	c.proxy.Set(Fault{Sever: []byte("$KV.x_ledger.")})
	c.say("PUB other 1")
	c.wantHeard("PUB other 1")
	c.wantAnswer("PUB other 1")
	c.say("PUB ack 1\r\nPUB $KV.x_ledger.a 1\r\nPUB later 1")
	c.wantHeard("PUB ack 1")
	_ = c.conn.SetReadDeadline(time.Now().Add(patience))
	for {
		line, err := c.from.ReadString('\n')
		if errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatal("the connection is still open")
		} else if err != nil {
			break
		}
		if line != "PUB ack 1\r\n" {
			t.Fatalf("answer %q", line)
		}
	}
	if !c.proxy.Severed() {
		t.Error("Severed returns false")
	}
	if len(c.received) > 0 {
		t.Errorf("the server has received %q", <-c.received)
	}
}

func TestNothingOfASeveredWriteIsPassedOn(t *testing.T) {
	t.Parallel()
	const write = "PUB $KV.x_ledger.a 1\r\n1\r\n"
	for data, want := range map[string]string{write: "", "PING\r\n" + write: "PING\r\n"} {
		p := Proxy{fault: Fault{Sever: []byte("$KV.x_ledger.")}}
		if got, goOn := p.fromClient([]byte(data)); string(got) != want || goOn {
			t.Errorf("of %q it passes on %q, and goes on: %v; want %q, and the end", data, got, goOn, want)
		}
	}
}

func TestAProxySeversAfterAWrite(t *testing.T) {
	t.Parallel()
	c := newThrough(t)
	c.proxy.Set(Fault{Sever: []byte("$KV.x_ledger."), Then: &Fault{Deaf: true}})
	c.say("PUB $KV.x_ledger.a 1")
	c.wantHeard("PUB $KV.x_ledger.a 1")
	if !c.proxy.Severed() {
		t.Error("Severed returns false")
	}
	c.proxy.Set(Fault{})
	c.wantEnd()
}

func TestOnlyWholeMessagesToTheSubjectAreLost(t *testing.T) {
	t.Parallel()
	const kept, lost = "PING\r\nPUB x.kept 2\r\nhi\r\n", "HPUB x.slot.a _INBOX.1 12 14\r\nNATS/1.0\r\n\r\nhi\r\n"
	for said, want := range map[string]string{
		"": "", kept: kept, lost: "", kept + lost + kept + lost: kept + kept,
		"PUB x.slot.a 2\r\nhi\r\n" + kept: kept,
		kept + lost[:len(lost)-1]:         kept + lost[:len(lost)-1],
		kept + lost[:9]:                   kept + lost[:9],
	} {
		if got := string(without([]byte(said), []byte("x.slot."))); got != want {
			t.Errorf("of %q, %q is left, want %q", said, got, want)
		}
	}
}

func TestAProxyTimesTheServerAlone(t *testing.T) {
	t.Parallel()
	address, received := echo(t)
	p, err := New()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	answered := make(chan time.Duration, 10)
	p.Time([]byte("$KV.x_nodes."), func(took time.Duration) { answered <- took })
	p.Set(Fault{Hold: true}) // the client receives nothing, but the server has answered
	conn, err := Dialer(p.Address()).Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	c := &through{t, p, conn, bufio.NewReader(conn), received}
	began := time.Now()
	c.say("PUB $KV.x_nodes.a _INBOX.1 0")
	c.wantHeard("PUB $KV.x_nodes.a _INBOX.1 0")
	c.say("MSG _INBOX.1 1 0") // the echo is the answer
	select {
	case took := <-answered:
		if took > time.Since(began) || len(answered) > 0 {
			t.Errorf("the answer took %v of %v, and %d more were timed", took, time.Since(began), len(answered))
		}
	case <-time.After(patience):
		t.Fatal("the proxy noticed no answer")
	}
}

func TestAProxyTimesOnlyAnsweredMessagesToTheSubject(t *testing.T) {
	t.Parallel()
	const other = "PUB $KV.x_ledger.a _INBOX.o 0\r\n\r\n"
	for name, c := range map[string]struct {
		said, answer string
		count        int
	}{
		"a message":             {other + "PUB $KV.x_nodes.a _INBOX.1 0\r\n\r\n", "MSG _INBOX.1 7 0\r\n\r\n", 1},
		"one with headers":      {"HPUB $KV.x_nodes.a _INBOX.1 12 12\r\nNATS/1.0\r\n\r\n\r\n", "HMSG _INBOX.1 7 12 12\r\n", 1},
		"two":                   {"PUB $KV.x_nodes.a _INBOX.1 0\r\n\r\nPUB $KV.x_nodes.a _INBOX.2 0\r\n\r\n", "MSG _INBOX.2 7 0\r\n\r\nMSG _INBOX.1 7 0\r\n\r\n", 2},
		"two copies":            {"PUB $KV.x_nodes.a _INBOX.1 0\r\n\r\nPUB $KV.x_nodes.a _INBOX.1 0\r\n\r\n", "MSG _INBOX.1 7 0\r\n\r\n", 1},
		"another reply":         {"PUB $KV.x_nodes.a _INBOX.1 0\r\n\r\n", "MSG _INBOX.11 7 0\r\n\r\n", 0},
		"no reply subject":      {"PUB $KV.x_nodes.a 0\r\n\r\n", "MSG 0 7 0\r\n\r\n", 0},
		"headers without reply": {"HPUB $KV.x_nodes.a 12 12\r\nNATS/1.0\r\n\r\n\r\n", "MSG 12 7 0\r\n\r\n", 0},
		"another subject":       {other, "MSG _INBOX.o 7 0\r\n\r\n", 0},
		"half a line":           {"PUB $KV.x_nodes.a _INBOX.1", "MSG _INBOX.1 7 0\r\n\r\n", 0},
	} {
		p, count := Proxy{}, 0
		p.Time([]byte("$KV.x_nodes."), func(time.Duration) { count++ })
		p.noteSent([]byte(c.said))
		p.noteAnswers([]byte(c.answer))
		p.noteAnswers([]byte(c.answer))
		if count != c.count {
			t.Errorf("%s: %d answers were timed, want %d", name, count, c.count)
		}
	}
}

func TestAnAnswerOfALostConnectionIsNotTimed(t *testing.T) {
	t.Parallel()
	c := newThrough(t)
	count := 0
	c.proxy.Time([]byte("$KV.x_nodes."), func(time.Duration) { count++ })
	c.proxy.noteSent([]byte("PUB $KV.x_nodes.a _INBOX.1 0\r\n\r\n"))
	c.proxy.Set(Fault{Cut: true})
	c.proxy.noteAnswers([]byte("MSG _INBOX.1 7 0\r\n\r\n"))
	if count > 0 {
		t.Error("the answer was timed")
	}
}

func TestAProxyTimesFromTheFirstCopy(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p, took := Proxy{}, time.Duration(0)
		p.Time([]byte("$KV.x_nodes."), func(d time.Duration) { took = d })
		for range 2 {
			p.noteSent([]byte("PUB $KV.x_nodes.a _INBOX.1 0\r\n\r\n"))
			time.Sleep(time.Second)
		}
		p.noteAnswers([]byte("MSG _INBOX.1 7 0\r\n\r\n"))
		if took != 2*time.Second {
			t.Errorf("the answer took %v, want 2s", took)
		}
	})
}
