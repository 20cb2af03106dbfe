//go:build long

package integration

import (
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/cronce-io/cronce/internal/lab/natstest"
)

// A service answers wrongly in every way. The node records for each slot what was wrong, goes on with other
// slots, and needs no more memory.
func TestRecordSaysWhatABadServiceDid(t *testing.T) {
	t.Parallel()
	s := newServedSite(t)
	addr, refused := natstest.FreeAddress(t), natstest.FreeAddress(t)
	s.service(addr)
	secure := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "trusted") }))
	secure.Config.ErrorLog = log.New(io.Discard, "", 0) // it would log clients that do not trust it
	secure.StartTLS()
	t.Cleanup(secure.Close)
	bad := "http://" + addr + "/bad/"
	cut := "status 200 OK, but the answer is incomplete: "
	cases := map[string]struct{ url, state, says, output string }{
		"hang":          {bad + "hang", "failed", "timeout of 2s", ""},
		"garbage":       {bad + "garbage", "failed", "malformed HTTP status code", ""},
		"close":         {bad + "close", "failed", "the connection broke before there was an answer", ""},
		"loop":          {bad + "loop", "failed", "status 307 Temporary Redirect to elsewhere.example, which is not followed: set url to the target", ""},
		"megabytes":     {bad + "megabytes", "succeeded", "", strings.Repeat("x", 1<<10)},
		"gigabytes":     {bad + "gigabytes", "succeeded", "", strings.Repeat("x", 1<<10)},
		"drip":          {bad + "drip", "failed", cut + "timeout of 2s", "....."},
		"driphead":      {bad + "driphead", "failed", "timeout of 2s", ""},
		"head":          {bad + "head", "failed", "response headers exceeded 65536 bytes", ""},
		"short":         {bad + "short", "failed", cut + "unexpected EOF", "half"},
		"long":          {bad + "long", "succeeded", "", "four"},
		"twice":         {bad + "twice", "failed", "Content-Length", ""},
		"old":           {bad + "old", "succeeded", "", "until the end"},
		"chunks":        {bad + "chunks", "failed", cut + "timeout of 2s", "....."},
		"hints":         {bad + "hints", "succeeded", "", "ok"},
		"hintsforever":  {bad + "hintsforever", "failed", "timeout of 2s", ""},
		"nocontent":     {bad + "nocontent", "succeeded", "", ""},
		"notmodified":   {bad + "notmodified", "failed", "status 304 Not Modified", ""},
		"nostatus":      {bad + "nostatus", "failed", "status 0", ""},
		"servererror":   {bad + "servererror", "failed", "status 500 Internal Server Error", "paper"},
		"anotherserver": {bad + "anotherserver", "failed", "malformed HTTP status code", ""},
		"refused":       {"http://" + refused + "/", "failed", "connection refused", ""},
		"nowhere":       {"http://nowhere.invalid/", "failed", "nowhere.invalid", ""},
		"unknown":       {secure.URL, "failed", "certificate signed by unknown authority", ""},
		"plain":         {"https://" + addr + "/work", "failed", "first record does not look like a TLS handshake", ""},
		"secure":        {strings.Replace(secure.URL, "https", "http", 1), "failed", "status 400 Bad Request", "HTTPS"},
	}
	instant := soon()
	text := fmt.Sprintf("version: 1\njobs:\n  - {name: work, schedule: \"* * * * * *\", overlap: allow, action: {http: {url: %q}}}\n", "http://"+addr+"/work")
	for name, c := range cases {
		text += fmt.Sprintf("  - {name: %s, %s, retry: {attempts: 1}, action: {http: {url: %q, timeout: 2s}}}\n", name, at(instant), c.url)
	}
	file := s.write("jobs.yaml", text)
	w := s.worker("w1", file, "--concurrency", "64")
	w.says("node is up")
	s.works(1)
	before := w.usage()
	rows := map[string]slotRow{}
	eventually(t, "an outcome of each", func() bool {
		for _, r := range s.slots() {
			if _, ok := cases[r.Job]; ok && (r.State == "failed" || r.State == "succeeded") {
				rows[r.Job] = r
			}
		}
		return len(rows) == len(cases)
	})
	for name, c := range cases {
		r := rows[name]
		if r.State != c.state || !strings.Contains(r.Error, c.says) || !strings.Contains(r.Output, c.output) || c.output == "" && r.Output != "" {
			t.Errorf("%s: %s, error %q, output %.50q, want %s, %q and %.50q", name, r.State, r.Error, r.Output, c.state, c.says, c.output)
		}
		if c.state == "failed" && !strings.HasPrefix(r.Error, "POST "+strings.TrimSuffix(c.url, "/")) || strings.ContainsAny(r.Error, "\x1b\n") {
			t.Errorf("%s: the error does not say of what, or not in plain text: %q", name, r.Error)
		}
		if r.Attempt != 1 {
			t.Errorf("%s: attempt %d", name, r.Attempt)
		}
	}
	s.works(2) // it goes on
	if grown := (w.usage().peak - before.resident) >> 20; grown > 64 {
		t.Errorf("the node has grown by %d MiB", grown)
	} else {
		t.Logf("the node has grown by %d MiB", grown)
	}
	for line := range strings.Lines(w.stderr()) {
		if fields := strings.Fields(line); len(fields) < 2 || !slices.Contains([]string{"INF", "WRN", "ERR"}, fields[1]) {
			t.Errorf("this is no line of the log: %q", line)
		}
	}
	term(w)

	// SSL_CERT_FILE makes the node trust an authority that the system does not know.
	authority := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: secure.Certificate().Raw})
	s.environment = []string{"SSL_CERT_FILE=" + s.write("authority.pem", string(authority))}
	trusting := s.worker("w2", file)
	trusting.says("node is up")
	s.command(0, "job", "trigger", "unknown", "--key", "again")
	eventually(t, "the service to be trusted", func() bool { return s.states("unknown")["@again"] == "succeeded" })
}
