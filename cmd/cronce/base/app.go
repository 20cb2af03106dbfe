// Package base has what the commands of cronce share: the global flags, the connection,
// the namespace, logs, tables, lines of JSON, errors with a next step, and the exit status.
package base

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/lmittmann/tint"
	"github.com/nats-io/nats.go"
	"github.com/spf13/cobra"

	"github.com/cronce-io/cronce/internal/broker/layout"
	"github.com/cronce-io/cronce/internal/codec"
	"github.com/cronce-io/cronce/internal/natsconn/connect"
	"github.com/cronce-io/cronce/internal/text/printable"
	"github.com/cronce-io/cronce/job"
)

// App is one execution of the program: its streams, its environment and its global
// flags. Commands get everything from it.
type App struct {
	Stdin          io.Reader
	Stdout, Stderr io.Writer
	Getenv         func(name string) string
	Now            func() time.Time

	// Log writes to stderr. It is set before a command runs.
	Log *slog.Logger

	// Local is the address of the embedded server. It is used if no server was chosen.
	Local string

	// Dialer makes the connections to the servers. Nil: they are direct.
	Dialer nats.CustomDialer

	Server, Context     string
	Login               connect.Login
	Domain, Inbox       string
	OwnInbox            bool // a flag or the environment chose Inbox
	Namespace, Store    string
	TLSFirst            bool
	Output              string
	logFormat, logLevel string
}

// The values of --output.
const (
	OutputText = "text"
	OutputJSON = "json"
)

var (
	formats   = []string{OutputText, OutputJSON} // of --output and --log-format
	logLevels = []string{"debug", "info", "warn", "error"}
)

// AddGlobalFlags adds the flags that every command has.
func (a *App) AddGlobalFlags(root *cobra.Command) {
	f := root.PersistentFlags()
	f.StringVar(&a.Server, "server", "", "NATS server `URL` [CRONCE_SERVER]")
	f.StringVar(&a.Context, "context", "", "`name` of a context of the nats CLI [CRONCE_CONTEXT]")
	f.StringVar(&a.Login.Creds, "creds", "", "NATS credentials `file` [CRONCE_CREDS]")
	f.StringVar(&a.Login.NKey, "nkey", "", "`file` with the seed of an nkey [CRONCE_NKEY]")
	f.StringVar(&a.Login.User, "user", "", "user `name`; the password is in CRONCE_PASSWORD; CRONCE_TOKEN replaces both [CRONCE_USER]")
	f.StringVar(&a.Login.Cert, "tlscert", "", "`file` with a client certificate, PEM [CRONCE_TLSCERT]")
	f.StringVar(&a.Login.Key, "tlskey", "", "`file` with the certificate's key, PEM [CRONCE_TLSKEY]")
	f.StringVar(&a.Login.CA, "tlsca", "", "`file` with the CA certificates that verify the server, PEM [CRONCE_TLSCA]")
	f.BoolVar(&a.TLSFirst, "tls-first", false, "begin TLS before the server's greeting, for a server with handshake_first [CRONCE_TLS_FIRST]")
	f.StringVar(&a.Domain, "js-domain", "", "JetStream `domain` [CRONCE_JS_DOMAIN]")
	f.StringVar(&a.Inbox, "inbox-prefix", "", "`subject` prefix of reply subjects (default: the context's, else _INBOX.NAMESPACE) [CRONCE_INBOX_PREFIX]")
	f.StringVar(&a.Namespace, "namespace", "", "`name` that prefixes all names on the broker (default cronce) [CRONCE_NAMESPACE]")
	f.StringVar(&a.Store, "store", "", "embedded server's `dir` (default: in the user's data directory) [CRONCE_STORE]")
	f.StringVarP(&a.Output, "output", "o", OutputText, "output `format`: text, or json (JSON Lines)")
	f.StringVar(&a.logFormat, "log-format", OutputText, "`format` of the logs on stderr: text or json")
	f.StringVar(&a.logLevel, "log-level", "info", "lowest `level` to log: debug, info, warn or error")
	Complete(root, "output", formats...)
	Complete(root, "log-format", formats...)
	Complete(root, "log-level", logLevels...)
	for _, flag := range []string{"server", "context", "namespace", "inbox-prefix", "user", "js-domain"} {
		Complete(root, flag)
	}
}

// Complete lets the shell complete a flag with these values and not with files.
func Complete(cmd *cobra.Command, flag string, values ...string) {
	// It fails only if the flag does not exist.
	_ = cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp))
}

// SetUp completes the flags from the environment and checks them. A flag on the command
// line overrides the environment. --context also overrides CRONCE_SERVER.
func (a *App) SetUp() error {
	if a.Server != "" && a.Context != "" {
		return Usage(errors.New("--server and --context exclude each other"))
	}
	if a.Server == "" && a.Context == "" {
		a.Server = a.Getenv("CRONCE_SERVER")
		if a.Server == "" {
			a.Context = a.Getenv("CRONCE_CONTEXT")
		}
	}
	fill := func(flag *string, variable, fallback string) {
		if *flag == "" {
			*flag = a.Getenv(variable)
		}
		if *flag == "" {
			*flag = fallback
		}
	}
	if text := a.Getenv("CRONCE_TLS_FIRST"); text != "" && !a.TLSFirst {
		first, err := strconv.ParseBool(text)
		if err != nil {
			return Usage(fmt.Errorf("invalid CRONCE_TLS_FIRST %q: want true or false", text))
		}
		a.TLSFirst = first
	}
	fill(&a.Domain, "CRONCE_JS_DOMAIN", "")
	fill(&a.Namespace, "CRONCE_NAMESPACE", job.DefaultNamespace)
	fill(&a.Store, "CRONCE_STORE", "")
	if err := codec.ValidateName("namespace", a.Namespace); err != nil {
		return Usage(err)
	}
	fill(&a.Inbox, "CRONCE_INBOX_PREFIX", "")
	a.OwnInbox = a.Inbox != ""
	a.Inbox = cmp.Or(a.Inbox, layout.InboxPrefix(a.Namespace))
	if err := layout.CheckInbox(a.Inbox); err != nil {
		return Usage(err)
	}
	if err := OneOf("--output", formats, a.Output); err != nil {
		return err
	}
	return a.setUpLog()
}

// OneOf returns a usage error if a value of a flag is not allowed.
func OneOf(flag string, allowed []string, values ...string) error {
	for _, value := range values {
		if !slices.Contains(allowed, value) {
			return Usage(fmt.Errorf("invalid %s %q: want %s", flag, value, strings.Join(allowed, ", ")))
		}
	}
	return nil
}

func (a *App) setUpLog() error {
	if err := OneOf("--log-format", formats, a.logFormat); err != nil {
		return err
	}
	if err := OneOf("--log-level", logLevels, a.logLevel); err != nil {
		return err
	}
	var level slog.Level
	if err := level.UnmarshalText([]byte(a.logLevel)); err != nil {
		return Usage(err)
	}
	var handler slog.Handler
	if a.logFormat == OutputJSON {
		handler = slog.NewJSONHandler(a.Stderr, &slog.HandlerOptions{Level: level})
	} else {
		handler = tint.NewTextHandler(a.Stderr, &tint.Options{Level: level, TimeFormat: "15:04:05.000", NoColor: !a.colour()})
	}
	a.Log = slog.New(printable.Logs(handler))
	return nil
}

// colour reports whether logs may have colours: only on a terminal, and not if NO_COLOR
// is set. Of the Windows consoles only Windows Terminal understands the escape sequences
// by default.
func (a *App) colour() bool {
	if a.Getenv("NO_COLOR") != "" || a.Getenv("TERM") == "dumb" {
		return false
	}
	if runtime.GOOS == "windows" && a.Getenv("WT_SESSION") == "" {
		return false
	}
	return a.Terminal()
}

// Terminal reports whether stderr is a terminal.
func (a *App) Terminal() bool { return IsTerminal(a.Stderr) }

// IsTerminal reports whether a stream is a terminal.
func IsTerminal(stream any) bool {
	f, ok := stream.(*os.File)
	if !ok {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

// StatusLine replaces the line of the terminal at which the cursor is. It does nothing, and returns
// false, if stderr is not a terminal.
func (a *App) StatusLine(text string) bool {
	if !a.Terminal() {
		return false
	}
	fmt.Fprintf(a.Stderr, "\r\x1b[K%s", text)
	return true
}
