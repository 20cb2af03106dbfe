package main

import (
	"context"
	"io"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/cronce-io/cronce/cmd/cronce/base"
	"github.com/cronce-io/cronce/internal/lab/filetest"
	"github.com/cronce-io/cronce/internal/lab/natstest"
)

// The streams are in the account OWNER. TEAM imports its API as a service with one answer, so a consumer
// delivers one message at most.
const importedAccount = `
accounts {
  OWNER { jetstream: enabled
    users: [{user: owner, password: a}]
    exports: [{service: "$JS.API.>"}, {stream: "cronce.>"}] }
  TEAM { users: [{user: team, password: b}]
    imports: [{service: {account: OWNER, subject: "$JS.API.>"}, to: "owner.API.>"}, {stream: {account: OWNER, subject: "cronce.>"}}] }
}
`

func TestAnAccountThatGetsNoDeliveriesIsNamedWithTheWayOut(t *testing.T) {
	t.Parallel()
	config := filepath.Join(t.TempDir(), "nats.conf")
	filetest.Write(t, config, importedAccount)
	parsed, err := server.ProcessConfigFile(config)
	if err != nil {
		t.Fatal(err)
	}
	s := natstest.Run(t, func(o *server.Options) { o.Accounts, o.Users = parsed.Accounts, parsed.Users })
	url := "nats://" + s.Addr().String()
	owner := cli{env: map[string]string{"CRONCE_SERVER": url, "CRONCE_USER": "owner", "CRONCE_PASSWORD": "a"}}
	if r := owner.run(t, "setup"); r.code != base.ExitDone {
		t.Fatal(r)
	}
	owner.stdin = "version: 1\njobs: [{name: a, schedule: none}, {name: b, schedule: none}, {name: c, schedule: none}]\n"
	if r := owner.run(t, "job", "apply", "-f", "-"); r.code != base.ExitDone {
		t.Fatal(r)
	}
	settings := filepath.Join(t.TempDir(), "team.json")
	filetest.Write(t, settings, `{"url":"`+url+`","user":"team","password":"b","jetstream_api_prefix":"owner.API"}`)
	team := cli{env: map[string]string{"CRONCE_CONTEXT": settings}}
	for _, command := range []string{"job ls", "doctor", "watch"} {
		r := team.run(t, strings.Fields(command)...)
		for _, want := range []string{"the messages of a consumer do not arrive", "response_type: stream", "try: cronce auth --accounts"} {
			if r.code != base.ExitFailed || !strings.Contains(r.stderr, want) || r.stdout != "" {
				t.Errorf("%s: %+v, want %q", command, r, want)
			}
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	logs := &stopAt{text: "the messages of a consumer do not arrive", stop: cancel}
	code := execute(ctx, team.app(io.Discard, logs), []string{"run", "--grace", "1ms"})
	if !strings.Contains(logs.String(), "node cannot work") {
		t.Errorf("run: %d, %s", code, logs)
	}
	// The owner's consumers deliver.
	if r := owner.run(t, "job", "ls", "-o", "json"); r.code != base.ExitDone || strings.Count(r.stdout, "\n") != 3 {
		t.Errorf("the owner: %+v", r)
	}
}

// stopAt is a log. It calls stop when the text is in it.
type stopAt struct {
	mu   sync.Mutex
	all  strings.Builder
	text string
	stop func()
}

func (l *stopAt) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all.Write(p)
	if strings.Contains(l.all.String(), l.text) {
		l.stop()
	}
	return len(p), nil
}

func (l *stopAt) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.all.String()
}
