package main

import (
	"context"
	"encoding/json"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/cronce-io/cronce/cmd/cronce/base"
	"github.com/cronce-io/cronce/internal/lab/filetest"
	"github.com/cronce-io/cronce/internal/lab/natstest"
	"github.com/cronce-io/cronce/internal/text/printable"
)

// No server listens on these addresses.
const (
	unreachable = "127.0.0.1:1"
	away        = "127.0.0.1:2"
)

func TestWrongUsage(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "jobs.yaml")
	content := "version: 1\njobs:\n  - {name: a, schedule: '@hourly', action: {exec: [a]}}\n"
	filetest.Write(t, file, content)
	for args, says := range map[string]string{
		"servr":                               `unknown command "cronce servr"; try: cronce server`,
		"trigger a":                           `unknown command "cronce trigger"; try: cronce job trigger`,
		"trigger a --payload 1":               `unknown command "cronce trigger"; try: cronce job trigger`,
		"slot sl --jobs a":                    `unknown command "cronce slot sl"; try: cronce slot ls`,
		"slot --jobs":                         "unknown flag: --jobs; try: cronce slot --help",
		"slot":                                `"cronce slot" needs a command; try: cronce slot --help`,
		"slot sl":                             `unknown command "cronce slot sl"; try: cronce slot ls`,
		"server now":                          `unexpected argument "now"; try: cronce server --help`,
		"run jobs.yaml":                       `unexpected argument "jobs.yaml"; try: cronce run -f FILE`,
		"job apply jobs.yaml":                 `unexpected argument "jobs.yaml"; try: cronce job apply -f FILE`,
		"server --lisen x":                    "unknown flag: --lisen; try: cronce server --help",
		"server --listen here":                `invalid listen address "here": want HOST:PORT like 127.0.0.1:4222`,
		"slot ls -o yaml":                     `invalid --output "yaml": want text, json`,
		"slot ls --log-format xml":            `invalid --log-format "xml"`,
		"slot ls --log-level loud":            `invalid --log-level "loud": want debug, info, warn, error`,
		"slot ls --namespace a.b":             `invalid namespace name "a.b"`,
		"slot ls --server a --context b":      "--server and --context exclude each other",
		"slot ls --server http://a":           `unknown scheme "http"`,
		"slot ls --context nosuch":            `NATS context "nosuch"`,
		"slot ls --server a --creds /no/such": "credentials file",
		"slot ls --job a.b":                   `invalid job name "a.b"`,
		"slot ls --state gone":                `invalid --state "gone": want pending, running`,
		"slot ls --since yesterday":           "want a duration like 90s, 36h or 7d",
		"slot ls --since 0s":                  `invalid --since "0s": want a duration like 90s, 36h or 7d, of more than 0`,
		"slot ls --ended-since 0d":            `invalid --ended-since "0d": want a duration`,
		"setup --horizon 0s":                  `invalid --horizon "0s": want a duration`,
		"run --lease 0s":                      `invalid --lease "0s": want a duration`,
		"slot ls --limit x":                   `invalid --limit "x": want a whole number, such as 10; try: cronce slot ls --help`,
		"slot ls --limit 9999999999999999999": "want a number nearer to 0",
		"verify --repair=maybe":               `invalid --repair "maybe": want true or false`,
		"run --clock-offset x":                `invalid --clock-offset "x": want a duration like 90s or 36h`,
		"run --file=":                         "invalid --file: must not be empty; leave it out for the default",
		"run --file " + file + " --queue=":    "invalid --queue: must not be empty",
		"run --node=":                         "invalid --node: must not be empty",
		"auth worker --queue=":                "invalid --queue: must not be empty; leave it out for the default",
		"verify --repair --job=":              "invalid --job: must not be empty",
		"job backfill a --from=":              "invalid --from: must not be empty",
		"slot ls --state=":                    "invalid --state: must not be empty",
		"slot ls --server=":                   "invalid --server: must not be empty",
		"slot ls --namespace=":                "invalid --namespace: must not be empty",
		"setup --replicas 7":                  "replicas 7: 1 to 5",
		"next":                                "next needs a SPEC, in quotes, or -f FILE",
		"next a b":                            "at most 1 arg",
		"next @hourly -f x":                   "SPEC and -f exclude each other",
		"next @hourly --count 0":              "invalid --count 0: must be at least 1",
		"next @hourly --from now":             `invalid --from "now": want an RFC 3339 time`,
		"next x --from 0001-01-01T00:00:00Z":  `invalid --from "0001-01-01T00:00:00Z": want a time after the first second of the year 1`,
		"next @hourly --until then":           `invalid --until "then"`,
		"next @hourly --tz Europe/Berln":      "did you mean Europe/Berlin?",
		"next @hourly --dst-gap x --tz y":     "; ",
		"next @yearlong":                      "@yearlong",
		"next -f " + file + " --tz UTC":       "--tz needs a SPEC",
		"next -f " + file + " --name b":       `has no job "b"; try: cronce check`,
		"next @hourly --name a.b":             `invalid job name "a.b": want 1 to 64 characters`,
		"next -f /no/such/file":               "/no/such/file",
	} {
		t.Run(args, func(t *testing.T) {
			t.Parallel()
			cli{}.run(t, strings.Fields(args)...).oneError(t, base.ExitUsage, says)
		})
	}
	cli{}.run(t, "next", "H 1 * * *").oneError(t, base.ExitUsage, "try: --name JOB")
}

func TestFailures(t *testing.T) {
	t.Parallel()
	locked := natstest.Run(t, func(o *server.Options) { o.Username, o.Password = "u", "right" })
	plain := natstest.Run(t, func(o *server.Options) { o.JetStream = false })
	file := filepath.Join(t.TempDir(), "file")
	filetest.Write(t, file, "")
	taken := listener(t)
	for args, says := range map[string]string{
		"slot ls":                              "nothing answers on " + unreachable + "; try: cronce run -f jobs.yaml, or --server URL",
		"setup":                                "nothing answers on " + unreachable,
		"node ls --server " + unreachable:      "nothing answers on nats://" + unreachable + "; try: start that server, or name another",
		"job ls --server " + plain.ClientURL(): "runs without JetStream",
		"job ls --server nats://u:secret@" + locked.Addr().String(): "Authorization Violation; try: --creds FILE, ",
		"server --listen 127.0.0.1:0 --store " + file + "/store":    "cannot use store " + file,
		"server --listen " + taken + " --store " + t.TempDir():      taken + " is in use by something that",
	} {
		t.Run(args, func(t *testing.T) {
			t.Parallel()
			c := cli{local: unreachable, env: map[string]string{"XDG_CONFIG_HOME": t.TempDir()}}
			r := c.run(t, strings.Fields(args)...)
			r.oneError(t, base.ExitFailed, says)
			if strings.Contains(r.stderr, "secret") {
				t.Errorf("the error shows the password: %s", r.stderr)
			}
		})
	}
}

func TestEnvironmentAndFlags(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		env  map[string]string
		args string
		says string
	}{
		"CRONCE_SERVER":                     {map[string]string{"CRONCE_SERVER": away}, "", "nothing answers on nats://" + away},
		"--server wins":                     {map[string]string{"CRONCE_SERVER": "http://x"}, "--server " + away, "nothing answers on nats://" + away},
		"CRONCE_CONTEXT":                    {map[string]string{"CRONCE_CONTEXT": "nosuch"}, "", `NATS context "nosuch"`},
		"--context wins over CRONCE_SERVER": {map[string]string{"CRONCE_SERVER": away}, "--context nosuch", `NATS context "nosuch"`},
		"CRONCE_SERVER before CRONCE_CONTEXT": {
			map[string]string{"CRONCE_SERVER": away, "CRONCE_CONTEXT": "nosuch"}, "", "nothing answers on nats://" + away,
		},
		"CRONCE_CREDS":     {map[string]string{"CRONCE_CREDS": "/no/such"}, "", "/no/such"},
		"CRONCE_NAMESPACE": {map[string]string{"CRONCE_NAMESPACE": "a b"}, "", `namespace name "a b"`},
		"NATS_URL":         {map[string]string{"NATS_URL": away}, "", "nothing answers on nats://" + away},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tc.env["XDG_CONFIG_HOME"] = t.TempDir()
			r := cli{local: unreachable, env: tc.env}.run(t, append([]string{"slot", "ls"}, strings.Fields(tc.args)...)...)
			if !strings.Contains(r.stderr, tc.says) {
				t.Errorf("stderr %q does not say %q", r.stderr, tc.says)
			}
		})
	}
}

// The output of a command goes to stdout, and logs go to stderr.
func TestLogsGoToStderr(t *testing.T) {
	t.Parallel()
	told, cancel := context.WithCancel(t.Context())
	cancel() // the server ends as soon as it has started
	args := []string{"server", "--listen", "127.0.0.1:0", "--store", t.TempDir()}

	r := cli{}.runContext(told, append(args, "--log-format", "json")...)
	var line struct{ Level, Msg string }
	if err := json.Unmarshal([]byte(r.stderr), &line); err != nil || line.Level != "INFO" || line.Msg != "stopping" {
		t.Errorf("logs are no JSON: %v\n%s", err, r.stderr)
	}
	if r.code != base.ExitDone || !strings.HasPrefix(r.stdout, "url    nats://127.0.0.1:") || strings.Contains(r.stdout, "stopping") {
		t.Errorf("%+v", r)
	}
	if r := (cli{}).runContext(told, append(args, "--log-level", "warn")...); r.code != base.ExitDone || r.stderr != "" {
		t.Errorf("with --log-level warn: %+v", r)
	}
}

// If the reader closes the pipe, the command has not failed.
func TestBrokenPipeIsACleanEnd(t *testing.T) {
	t.Parallel()
	var stderr strings.Builder
	a := &base.App{Stdout: closedPipe{}, Stderr: &stderr, Getenv: os.Getenv, Now: func() time.Time { return noon }}
	if code := execute(t.Context(), a, []string{"next", "* * * * * *", "--count", "100000", "-o", "json"}); code != base.ExitDone || stderr.String() != "" {
		t.Errorf("exit status %d, stderr %q: want 0 and nothing", code, &stderr)
	}
}

// Scripts take the status of doctor and verify for the state of the fleet.
func TestServerThatTakesNoMoreConnectionsIsAnError(t *testing.T) {
	t.Parallel()
	s := natstest.Run(t, func(o *server.Options) { o.MaxConn = 1 })
	s.Conn()
	c := cli{env: map[string]string{"CRONCE_SERVER": s.ClientURL()}}
	for _, command := range []string{"doctor", "verify"} {
		c.run(t, command).oneError(t, base.ExitFailed, "max_connections")
	}
}

type closedPipe struct{}

func (closedPipe) Write([]byte) (int, error) { return 0, syscall.EPIPE }

// listener listens on an address and is not a NATS server.
func listener(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l.Addr().String()
}

func TestErrorIsShownWithoutWhatATerminalObeys(t *testing.T) {
	t.Parallel()
	r := cli{}.run(t, "check", "no\x1b[31m-such-file")
	if r.code != base.ExitUsage || strings.ContainsFunc(strings.TrimSuffix(r.stderr, "\n"), printable.Hidden) {
		t.Errorf("%+v", r)
	}
	r = cli{}.run(t, "next", strings.Repeat("x", 100_000))
	if r.code != base.ExitUsage || len(r.stderr) > 3000 {
		t.Errorf("%d bytes on stderr, status %d", len(r.stderr), r.code)
	}
}
