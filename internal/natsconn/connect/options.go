package connect

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
)

// pingInterval is how often the client pings the server.
const pingInterval = 5 * time.Second

func (t Target) options() []nats.Option {
	w := &watcher{log: t.cfg.Logger, where: t.String()}
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
		nats.DisconnectErrHandler(w.disconnected),
		nats.ReconnectHandler(w.reconnected),
		nats.ReconnectErrHandler(w.stillAway),
		nats.ErrorHandler(w.asyncError),
		t.inbox,
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
	const least, most = 100 * time.Millisecond, 2 * time.Second
	pause := min(least<<min(n, 10), most)
	return pause/2 + rand.N(pause/2)
}

// watcher logs the changes of a connection, and not each attempt to reconnect.
type watcher struct {
	log   *slog.Logger
	where string

	mu             sync.Mutex
	last           string // the last error that method once has logged
	lost, reminded time.Time
}

func (w *watcher) disconnected(nc *nats.Conn, err error) {
	if nc.IsClosed() {
		return
	}
	w.mu.Lock()
	w.lost, w.reminded = time.Now(), time.Now()
	w.mu.Unlock()
	w.log.Warn("lost the NATS server, reconnecting", "server", w.where, "error", err)
}

func (w *watcher) reconnected(nc *nats.Conn) {
	w.mu.Lock()
	w.last = ""
	w.mu.Unlock()
	w.log.Info("connected to NATS again", "server", redactText(nc.ConnectedUrl()))
}

// remindEvery is how often the log repeats that the server is still unreachable.
const remindEvery = time.Minute

func (w *watcher) stillAway(_ *nats.Conn, err error) {
	w.mu.Lock()
	remind := !w.lost.IsZero() && time.Since(w.reminded) >= remindEvery
	since := time.Since(w.lost)
	if remind {
		w.reminded = time.Now()
	}
	w.mu.Unlock()
	if remind {
		w.log.Warn("still waiting for the NATS server", "server", w.where, "for", since.Round(time.Second), "error", err)
		return
	}
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
	log.Warn("NATS reports an error", "error", err)
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
