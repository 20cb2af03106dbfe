//go:build unix

package integration

import (
	"fmt"
	"net"
	"net/http"
	"strings"
	"time"
)

// misbehave adds paths whose answers no service should give. Each writes its bytes to the connection by itself.
func misbehave(mux *http.ServeMux) {
	every := func(d time.Duration, c net.Conn, text string) {
		for tick := time.Tick(d); ; <-tick {
			if _, err := c.Write([]byte(text)); err != nil {
				return
			}
		}
	}
	ok := "HTTP/1.1 200 OK\r\n"
	for path, answer := range map[string]func(c net.Conn){
		"hang":    func(c net.Conn) { _, _ = c.Read(make([]byte, 1)) },
		"garbage": func(c net.Conn) { fmt.Fprint(c, "\x16\x03\x01\x02\x00 SSH-2.0 \x1b[2J\r\n\r\n") },
		"close":   func(net.Conn) {},
		"loop": func(c net.Conn) {
			fmt.Fprint(c, "HTTP/1.1 307 Temporary Redirect\r\nLocation: http://elsewhere.example/bad/loop\r\nContent-Length: 0\r\n\r\n")
		},
		"megabytes": func(c net.Conn) {
			fmt.Fprintf(c, ok+"Content-Length: %d\r\n\r\n%s", 8<<20, strings.Repeat("x", 8<<20))
		},
		"gigabytes": func(c net.Conn) {
			fmt.Fprintf(c, ok+"Content-Length: %d\r\n\r\n", int64(1)<<40)
			every(time.Nanosecond, c, strings.Repeat("x", 1<<20))
		},
		"drip": func(c net.Conn) {
			fmt.Fprint(c, ok+"Content-Length: 1000\r\n\r\n")
			every(100*time.Millisecond, c, ".")
		},
		"driphead": func(c net.Conn) { fmt.Fprint(c, ok+"X: "); every(100*time.Millisecond, c, ".") },
		"head": func(c net.Conn) {
			fmt.Fprint(c, ok)
			every(time.Nanosecond, c, "X: "+strings.Repeat("x", 1<<10)+"\r\n")
		},
		"short": func(c net.Conn) { fmt.Fprint(c, ok+"Content-Length: 100\r\n\r\nhalf") },
		"long": func(c net.Conn) {
			fmt.Fprint(c, ok+"Content-Length: 4\r\n\r\nfour"+strings.Repeat("HTTP/1.1 200 OK\r\n\r\n", 9))
			hold(c)
		},
		"twice": func(c net.Conn) { fmt.Fprint(c, ok+"Content-Length: 4\r\nContent-Length: 5\r\n\r\nfour") },
		"old":   func(c net.Conn) { fmt.Fprint(c, "HTTP/1.0 200 OK\r\n\r\nuntil the end") },
		"chunks": func(c net.Conn) {
			fmt.Fprint(c, ok+"Transfer-Encoding: chunked\r\n\r\n")
			every(50*time.Millisecond, c, "1\r\n.\r\n")
		},
		"hints": func(c net.Conn) {
			fmt.Fprint(c, strings.Repeat("HTTP/1.1 103 Early Hints\r\n\r\n", 3)+ok+"Content-Length: 2\r\n\r\nok")
			hold(c)
		},
		"hintsforever":  func(c net.Conn) { every(time.Millisecond, c, "HTTP/1.1 100 Continue\r\n\r\n") },
		"nocontent":     func(c net.Conn) { fmt.Fprint(c, "HTTP/1.1 204 No Content\r\nContent-Length: 4\r\n\r\nbody"); hold(c) },
		"notmodified":   func(c net.Conn) { fmt.Fprint(c, "HTTP/1.1 304 Not Modified\r\n\r\n") },
		"nostatus":      func(c net.Conn) { fmt.Fprint(c, "HTTP/1.1 000 Nothing\r\n\r\n") },
		"servererror":   func(c net.Conn) { fmt.Fprint(c, "HTTP/1.1 500 No\r\nContent-Length: 13\r\n\r\nno \x1b[31mpaper") },
		"anotherserver": func(c net.Conn) { fmt.Fprint(c, "-ERR unknown command\r\n") },
	} {
		mux.HandleFunc("POST /bad/"+path, func(w http.ResponseWriter, _ *http.Request) {
			c, _, err := w.(http.Hijacker).Hijack()
			if err != nil {
				return
			}
			defer c.Close()
			answer(c)
		})
	}
}

// hold keeps the connection open for a second, in which a client could use it again.
func hold(c net.Conn) {
	_ = c.SetReadDeadline(time.Now().Add(time.Second))
	_, _ = c.Read(make([]byte, 1))
}
