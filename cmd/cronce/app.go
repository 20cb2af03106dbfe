package main

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"runtime"
	"strings"
	"time"

	"github.com/lmittmann/tint"
	"github.com/spf13/cobra"

	"github.com/cronce-io/cronce/internal/natsconn/connect"
	"github.com/cronce-io/cronce/internal/printable"
	"github.com/cronce-io/cronce/job"
	"github.com/cronce-io/cronce/kv"
)

// app is one execution of the program: its streams, its environment and what
// the global flags say. Commands get everything from here.
type app struct {
	stdin          io.Reader
	stdout, stderr io.Writer
	getenv         func(name string) string
	now            func() time.Time

	// log writes to stderr, always. Set before a command runs.
	log *slog.Logger

	// local is where the embedded server listens and is looked for when nothing
	// else was chosen.
	local string

	server, context     string
	login               connect.Login
	domain, inbox       string
	namespace, store    string
	output              string
	logFormat, logLevel string
}

const (
	outputText = "text"
	outputJSON = "json"
)

func (a *app) addGlobalFlags(root *cobra.Command) {
	f := root.PersistentFlags()
	f.StringVar(&a.server, "server", "", "NATS server `URL` [CRONCE_SERVER]")
	f.StringVar(&a.context, "context", "", "`name` of a NATS context, as the nats CLI keeps them [CRONCE_CONTEXT]")
	f.StringVar(&a.login.Creds, "creds", "", "NATS credentials `file` [CRONCE_CREDS]")
	f.StringVar(&a.login.NKey, "nkey", "", "`file` with the seed of an nkey [CRONCE_NKEY]")
	f.StringVar(&a.login.User, "user", "", "`name` to log in with; its password is in CRONCE_PASSWORD, or a CRONCE_TOKEN in place of both [CRONCE_USER]")
	f.StringVar(&a.login.Cert, "tlscert", "", "`file` with a client certificate, PEM [CRONCE_TLSCERT]")
	f.StringVar(&a.login.Key, "tlskey", "", "`file` with the certificate's key, PEM [CRONCE_TLSKEY]")
	f.StringVar(&a.login.CA, "tlsca", "", "`file` with the certificates to check the server's by, PEM [CRONCE_TLSCA]")
	f.StringVar(&a.domain, "js-domain", "", "JetStream `domain` [CRONCE_JS_DOMAIN]")
	f.StringVar(&a.inbox, "inbox-prefix", "", "`subject` that those for answers begin with (default: _INBOX.NAMESPACE) [CRONCE_INBOX_PREFIX]")
	f.StringVar(&a.namespace, "namespace", "", "`name` before all names on the broker (default cronce) [CRONCE_NAMESPACE]")
	f.StringVar(&a.store, "store", "", "embedded server's `dir` (default: in the user's data directory) [CRONCE_STORE]")
	f.StringVarP(&a.output, "output", "o", outputText, "`format` of what is printed: text, or json (JSON Lines)")
	f.StringVar(&a.logFormat, "log-format", outputText, "`format` of logs, which go to stderr: text or json")
	f.StringVar(&a.logLevel, "log-level", "info", "least `level` of logs: debug, info, warn or error")
	complete(root, "output", outputText, outputJSON)
	complete(root, "log-format", outputText, outputJSON)
	complete(root, "log-level", "debug", "info", "warn", "error")
	for _, flag := range []string{"server", "context", "namespace", "inbox-prefix", "user", "js-domain"} {
		complete(root, flag)
	}
}

// complete has the shell offer these values for a flag, and no files.
func complete(cmd *cobra.Command, flag string, values ...string) {
	// It fails only for a flag that does not exist.
	_ = cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp))
}

// setUp completes the flags from the environment and checks them. A flag given
// on the command line wins over the environment, and --context also over
// CRONCE_SERVER: who names a context does not mean the usual server.
func (a *app) setUp() error {
	if a.server != "" && a.context != "" {
		return usage(errors.New("--server and --context exclude each other"))
	}
	if a.server == "" && a.context == "" {
		a.server = a.getenv("CRONCE_SERVER")
		if a.server == "" {
			a.context = a.getenv("CRONCE_CONTEXT")
		}
	}
	fill := func(flag *string, variable, fallback string) {
		if *flag == "" {
			*flag = a.getenv(variable)
		}
		if *flag == "" {
			*flag = fallback
		}
	}
	fill(&a.domain, "CRONCE_JS_DOMAIN", "")
	fill(&a.namespace, "CRONCE_NAMESPACE", kv.DefaultNamespace)
	fill(&a.store, "CRONCE_STORE", "")
	if err := job.ValidateName("namespace", a.namespace); err != nil {
		return usage(err)
	}
	fill(&a.inbox, "CRONCE_INBOX_PREFIX", kv.InboxPrefix(a.namespace))
	if err := kv.CheckInbox(a.inbox); err != nil {
		return usage(err)
	}
	if err := oneOf("--output", a.output, outputText, outputJSON); err != nil {
		return err
	}
	return a.setUpLog()
}

func oneOf(flag, value string, allowed ...string) error {
	for _, v := range allowed {
		if value == v {
			return nil
		}
	}
	return usage(fmt.Errorf("invalid %s %q: want %s", flag, value, strings.Join(allowed, ", ")))
}

func (a *app) setUpLog() error {
	if err := oneOf("--log-format", a.logFormat, outputText, outputJSON); err != nil {
		return err
	}
	if err := oneOf("--log-level", a.logLevel, "debug", "info", "warn", "error"); err != nil {
		return err
	}
	var level slog.Level
	if err := level.UnmarshalText([]byte(a.logLevel)); err != nil {
		return usage(err)
	}
	var handler slog.Handler
	if a.logFormat == outputJSON {
		handler = slog.NewJSONHandler(a.stderr, &slog.HandlerOptions{Level: level})
	} else {
		handler = tint.NewTextHandler(a.stderr, &tint.Options{Level: level, TimeFormat: "15:04:05.000", NoColor: !a.colour()})
	}
	a.log = slog.New(printable.Logs(handler))
	return nil
}

// colour reports whether logs may carry colours: only for a person at a terminal
// who did not set NO_COLOR. Of the Windows consoles only the newer one knows the
// escape sequences without being asked.
func (a *app) colour() bool {
	if a.getenv("NO_COLOR") != "" || a.getenv("TERM") == "dumb" {
		return false
	}
	if runtime.GOOS == "windows" && a.getenv("WT_SESSION") == "" {
		return false
	}
	return a.terminal()
}

// terminal reports whether a person looks at stderr.
func (a *app) terminal() bool {
	f, ok := a.stderr.(*os.File)
	if !ok {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}
