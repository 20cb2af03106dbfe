package connect

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v4"
	"github.com/nats-io/nats.go"

	"github.com/cronce-io/cronce/internal/codec"
	"github.com/cronce-io/cronce/job"
)

// pingInterval is how often the client pings the server.
const pingInterval = 5 * time.Second

func (t Target) options() []nats.Option {
	w := newWatcher(t.cfg.Logger, t.String())
	options := []nats.Option{
		nats.Name("cronce " + t.cfg.Name),
		nats.Timeout(mostHandshake),
		nats.SetCustomDialer(t.patience),
		nats.MaxReconnects(-1),
		nats.CustomReconnectDelay(t.delay),
		nats.ReconnectBufSize(-1),
		nats.PingInterval(pingInterval),
		nats.MaxPingsOutstanding(2),
		// Close a socket that accepts no data for as long as a server may leave pings
		// unanswered. The client's default of a minute is longer than most leases.
		nats.FlusherTimeout(2 * pingInterval),
		nats.ReconnectOnFlusherError(),
		nats.IgnoreAuthErrorAbort(),
		nats.DisconnectErrHandler(func(nc *nats.Conn, err error) { w.disconnected(nc, err) }),
		nats.ReconnectHandler(w.reconnected),
		nats.ReconnectErrHandler(w.stillAway),
		nats.ErrorHandler(w.asyncError),
		t.inbox,
	}
	if t.cfg.TLSFirst {
		options = append(options, nats.TLSHandshakeFirst())
	}
	return append(options, t.cfg.Login.apply)
}

// inbox sets the prefix of reply subjects. A prefix that the user did not choose does not replace
// that of the context.
func (t Target) inbox(o *nats.Options) error {
	if t.cfg.Inbox == "" || o.InboxPrefix != "" && !t.cfg.OwnInbox {
		return nil
	}
	return nats.CustomInboxPrefix(t.cfg.Inbox)(o)
}

// delay returns the pause before the nth round of reconnecting. On loopback another process
// takes over the server at once. Elsewhere the delay spreads the reconnects of a fleet.
func (t Target) delay(n int) time.Duration {
	if t.local {
		return 50*time.Millisecond + rand.N(200*time.Millisecond)
	}
	b := backoff.NewExponentialBackOff(backoff.WithInitialInterval(75*time.Millisecond), backoff.WithMultiplier(2),
		backoff.WithMaxInterval(1500*time.Millisecond), backoff.WithRandomizationFactor(0.3), backoff.WithMaxElapsedTime(0))
	for range min(n, 10) {
		b.NextBackOff()
	}
	return b.NextBackOff()
}

// watcher logs the changes of a connection, and not each attempt to reconnect.
type watcher struct {
	log   *slog.Logger
	where string

	mu       sync.Mutex
	last     string // the last error that method once has logged
	lost     time.Time
	refused  error // why the last connection could not be opened
	reminder *time.Timer
	reported map[string]time.Time // when asyncError last logged an error, by its text
}

func newWatcher(log *slog.Logger, where string) *watcher {
	return &watcher{log: log, where: where, reported: map[string]time.Time{}}
}

// link is what the watcher asks a connection.
type link interface {
	IsClosed() bool
	IsReconnecting() bool

	// LastError returns why the server, or the client, has ended the last handshake. It is nil
	// if the last connection could not be opened.
	LastError() error
}

func (w *watcher) disconnected(nc link, err error) {
	if nc.IsClosed() {
		return
	}
	w.log.Warn("lost the NATS server, reconnecting", "server", w.where, "error", err)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.lost, w.refused = time.Now(), nil
	w.stopReminder()
	w.reminder = time.AfterFunc(remindFirst, func() { w.remind(nc) })
}

func (w *watcher) reconnected(nc *nats.Conn) {
	w.mu.Lock()
	w.last = ""
	w.stopReminder()
	w.mu.Unlock()
	w.log.Info("connected to NATS again", "server", redactText(nc.ConnectedUrl()))
}

func (w *watcher) stopReminder() {
	if w.reminder != nil {
		w.reminder.Stop()
	}
}

// While the server is away, the log says so after remindFirst, and then every remindEvery.
const (
	remindFirst = 10 * time.Second
	remindEvery = time.Minute
)

// remind logs why the connection is still away. It does not depend on a report of the client, which
// reports no handshake that fails: of TLS, or with a server that has no place.
func (w *watcher) remind(nc link) {
	if !nc.IsReconnecting() {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	err := nc.LastError()
	if err == nil {
		err = w.refused
	}
	w.log.Warn("still waiting for the NATS server", "server", w.where, "for", time.Since(w.lost).Round(time.Second), "error", err)
	w.reminder.Reset(remindEvery)
}

func (w *watcher) stillAway(_ *nats.Conn, err error) {
	w.mu.Lock()
	w.refused = err
	w.mu.Unlock()
	w.once(slog.LevelDebug, "still waiting for the NATS server", err)
}

func (w *watcher) asyncError(_ *nats.Conn, sub *nats.Subscription, err error) {
	if refusesLogin(err) {
		w.once(slog.LevelWarn, "the NATS server refuses the credentials, will retry", err)
		return
	}
	log := w.log
	if sub != nil {
		log = log.With("subject", sub.Subject)
	}
	if w.repeats(err) {
		log.Debug("NATS reports an error again", "error", err)
		return
	}
	log.Warn("NATS reports an error", "error", err)
}

// mostErrors bounds watcher.reported.
const mostErrors = 100

// repeats reports whether this error was logged within remindEvery: a request that is not permitted may
// be repeated for days.
func (w *watcher) repeats(err error) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	text := err.Error()
	if last, logged := w.reported[text]; logged && time.Since(last) < remindEvery {
		return true
	}
	if len(w.reported) >= mostErrors {
		clear(w.reported)
	}
	w.reported[text] = time.Now()
	return false
}

// once logs an error, unless it was the last one logged since the connection was established.
func (w *watcher) once(level slog.Level, message string, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if text := err.Error(); text != w.last {
		w.last = text
		w.log.Log(context.Background(), level, message, "server", w.where, "error", err)
	}
}

// Login holds credentials. Every field is optional. Creds, User, Token and NKey exclude
// each other; any of them replaces the credentials of a NATS context, and each TLS file
// replaces that of the context.
type Login struct {
	// Creds is a credentials file, NKey a file that contains a seed.
	Creds, NKey string

	User, Password, Token string

	// Cert and Key are a client certificate and its key. CA contains the certificates
	// that verify the server's. All are PEM files.
	Cert, Key, CA string
}

// or returns l with its empty fields filled in from the environment variables with these names,
// after the prefix. It takes credentials from there only if l has none at all. If l has a user
// without a password, it takes the password from there. CRONCE_PASSWORD is the password of --user
// too, but NATS_PASSWORD is only that of NATS_USER.
func (l Login) or(getenv func(string) string, prefix string, names Login) Login {
	env := func(name string) string {
		if name == "" {
			return ""
		}
		return getenv(prefix + name)
	}
	if l.Creds == "" && l.NKey == "" && l.User == "" && l.Token == "" {
		l.Creds, l.NKey, l.User, l.Token = env(names.Creds), env(names.NKey), env(names.User), env(names.Token)
	}
	if l.User != "" && l.Password == "" && (prefix == "CRONCE_" || l.User == env(names.User)) {
		l.Password = env(names.Password)
	}
	if l.Cert == "" && l.Key == "" {
		l.Cert, l.Key = env(names.Cert), env(names.Key)
	}
	if l.CA == "" {
		l.CA = env(names.CA)
	}
	return l
}

// cronceVariables and natsVariables are the names of the environment variables of a login,
// without their prefixes "CRONCE_" and "NATS_". The nats CLI uses the latter.
var (
	cronceVariables = Login{
		Creds: "CREDS", NKey: "NKEY", User: "USER", Password: "PASSWORD", Token: "TOKEN", Cert: "TLSCERT", Key: "TLSKEY", CA: "TLSCA",
	}
	natsVariables = Login{Creds: "CREDS", NKey: "NKEY", User: "USER", Password: "PASSWORD", Token: "TOKEN", Cert: "CERT", Key: "KEY", CA: "CA"}
)

// methods lists the authentication methods that l sets.
func (l Login) methods() (names []string) {
	for name, value := range map[string]string{"credentials": l.Creds, "nkey": l.NKey, "user": l.User, "token": l.Token} {
		if value != "" {
			names = append(names, name)
		}
	}
	return names
}

// check validates l. It sends nothing to a server. Its errors wrap job.ErrInvalid. They name files
// and never quote their content.
func (l Login) check() error {
	switch {
	case len(l.methods()) > 1:
		return fmt.Errorf("%w login: credentials, nkey, user and token exclude each other", job.ErrInvalid)
	case l.Password != "" && l.User == "":
		return fmt.Errorf("%w login: a password without a user", job.ErrInvalid)
	case (l.Cert == "") != (l.Key == ""):
		return fmt.Errorf("%w login: a client certificate needs its key, and a key its certificate", job.ErrInvalid)
	}
	for what, path := range map[string]string{
		"credentials": l.Creds, "nkey": l.NKey, "client certificate": l.Cert, "client key": l.Key, "CA": l.CA,
	} {
		if path == "" {
			continue
		}
		f, err := os.Open(path)
		if err != nil {
			return fmt.Errorf("%w %s file: %w", job.ErrInvalid, what, err)
		}
		f.Close()
	}
	return nil
}

// apply overrides the options in o for which l has a value.
func (l Login) apply(o *nats.Options) error {
	if len(l.methods()) > 0 {
		o.User, o.Password, o.Token, o.Nkey = "", "", "", ""
		o.UserJWT, o.SignatureCB = nil, nil
	}
	var options []nats.Option
	switch {
	case l.Creds != "":
		options = append(options, nats.UserCredentials(l.Creds))
	case l.User != "":
		options = append(options, nats.UserInfo(l.User, l.Password))
	case l.Token != "":
		options = append(options, nats.Token(l.Token))
	case l.NKey != "":
		option, err := nats.NkeyOptionFromSeed(l.NKey)
		if err != nil {
			return fmt.Errorf("%w nkey file %s: %s", job.ErrInvalid, l.NKey, codec.OneLine(err))
		}
		options = append(options, option)
	}
	if l.Cert != "" {
		options = append(options, nats.ClientCert(l.Cert, l.Key))
	}
	if l.CA != "" {
		options = append(options, nats.RootCAs(l.CA))
	}
	for _, option := range options {
		if err := option(o); err != nil {
			return fmt.Errorf("%w login: %s", job.ErrInvalid, codec.OneLine(err))
		}
	}
	return nil
}
