//go:build unix

package integration

import (
	"fmt"
	"net"
	"net/http"
	"net/http/httputil"
	"os"
	"strings"
	"sync"
	"time"
)

// With serviceAddress in its environment, the test binary is the service behind http actions: a process that a
// test can kill.
const serviceAddress = "CRONCE_TEST_SERVICE"

// serve is that service. It does the work for each idempotency key once: the file "done" in its working directory
// lists the keys.
func serve(addr string) error {
	var mu sync.Mutex
	mux := http.NewServeMux()
	mux.HandleFunc("GET /ready", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("POST /work", func(w http.ResponseWriter, r *http.Request) {
		dump, err := httputil.DumpRequest(r, true)
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		fmt.Fprintf(w, "%s\n", dump)
		mu.Lock()
		defer mu.Unlock()
		if err := once(r.Header.Get("Idempotency-Key")); err != nil {
			panic(http.ErrAbortHandler) // the answer has begun
		}
	})
	mux.HandleFunc("POST /slow", func(http.ResponseWriter, *http.Request) {
		if err := appendLine("slow", "begun"); err != nil {
			panic(err)
		}
		<-time.After(3 * time.Second) // in the middle of this work, the service can be stopped
	})
	misbehave(mux)
	return http.ListenAndServe(addr, mux)
}

func once(key string) error {
	done, err := os.ReadFile("done")
	if err != nil && !os.IsNotExist(err) {
		return err
	}
	if strings.Contains("\n"+string(done), "\n"+key+"\n") {
		return nil
	}
	<-time.After(50 * time.Millisecond) // in the middle of this work, the service can be killed
	return appendLine("done", key)
}

func appendLine(file, line string) error {
	f, err := os.OpenFile(file, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = f.WriteString(line + "\n")
	return err
}

// service starts the service on addr, with the site's folder as working directory.
func (s *site) service(addr string) *process {
	s.t.Helper()
	self, err := os.Executable()
	if err != nil {
		s.t.Fatal(err)
	}
	env := append(s.env(), serviceAddress+"="+addr)
	p := start(s.t, "service", env, s.as, "/bin/sh", "-c", `cd "$0" && exec "$1"`, s.dir, self)
	eventually(s.t, "the service to listen", func() bool {
		c, err := net.Dial("tcp", addr)
		if err == nil {
			c.Close()
		}
		return err == nil
	})
	return p
}
