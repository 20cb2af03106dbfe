package connect

import (
	"cmp"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"os/user"
	"path/filepath"
	"strings"

	"github.com/nats-io/nats.go"

	"github.com/cronce-io/cronce/internal/codec"
	"github.com/cronce-io/cronce/job"
)

// Config holds the user's choices. Every field but Local is optional.
type Config struct {
	// Server is one URL, or several separated by commas. Context names a NATS context. If
	// both are set, Server is used.
	Server, Context string

	// Login holds the credentials.
	Login Login

	// TLSFirst begins TLS before the server's greeting, for servers with handshake_first. A context may
	// set it too.
	TLSFirst bool

	// Domain is the JetStream domain. It overrides that of a context.
	Domain string

	// Inbox is the prefix of reply subjects. A context's prefix overrides it, unless OwnInbox is
	// true. If there is none, it is _INBOX.
	Inbox    string
	OwnInbox bool

	// Local is host:port of the loopback default. Required.
	Local string

	// Name is part of the connection's name on the server: "cronce <Name>".
	Name string

	// Dialer opens the connections. If it is nil, a dialer with a timeout of three seconds does.
	Dialer nats.CustomDialer

	// Getenv reads the environment. If it is nil, it is os.Getenv.
	Getenv func(string) string

	// Logger logs changes of the connection. If it is nil, nothing is logged.
	Logger *slog.Logger
}

// Target is the NATS context, or the servers, that Resolve has chosen.
type Target struct {
	cfg     Config
	servers []string // empty if context is set
	context string
	local   bool

	patience *patience // shared by all copies
}

// Local reports whether no server was chosen, so that the loopback default applies. Only
// there may a process embed a server.
func (t Target) Local() bool { return t.local }

// String names the target in messages, without secrets.
func (t Target) String() string {
	if t.context != "" {
		return fmt.Sprintf("NATS context %q", t.context)
	}
	if t.local {
		return t.cfg.Local
	}
	return redact(t.servers)
}

// Resolve chooses the target. It sends nothing to a server. Its errors wrap job.ErrInvalid.
func Resolve(cfg Config) (Target, error) {
	if cfg.Getenv == nil {
		cfg.Getenv = os.Getenv
	}
	cfg.Logger = cmp.Or(cfg.Logger, slog.New(slog.DiscardHandler))
	cfg.Login = cfg.Login.or(cfg.Getenv, "CRONCE_", cronceVariables)
	t := Target{cfg: cfg, patience: newPatience(cfg.Dialer)}
	switch {
	case cfg.Server != "":
		t.servers = strings.Split(cfg.Server, ",")
	case cfg.Context != "":
		t.context = cfg.Context
	case cfg.Getenv("NATS_URL") != "":
		t.servers = strings.Split(cfg.Getenv("NATS_URL"), ",")
		t.cfg.Login = t.cfg.Login.or(cfg.Getenv, "NATS_", natsVariables)
	default:
		if t.context = selectedContext(cfg.Getenv); t.context == "" {
			t.servers, t.local = []string{"nats://" + cfg.Local}, true
		}
	}
	for i, s := range t.servers {
		server, err := checkURL(strings.TrimSpace(s))
		if err != nil {
			return Target{}, err
		}
		t.servers[i] = server
	}
	if cfg.Domain != "" {
		if err := codec.ValidateName("domain", cfg.Domain); err != nil {
			return Target{}, err
		}
	}
	return t, t.cfg.Login.check()
}

// checkURL completes a server's URL with the scheme if it has none. It rejects a URL that cannot be
// parsed, has no host, or has a scheme that NATS does not have.
func checkURL(s string) (string, error) {
	if !strings.Contains(s, "://") {
		s = "nats://" + s
	}
	bad := func(why string) (string, error) {
		return "", fmt.Errorf("%w server URL %q: %s: want nats://HOST:PORT", job.ErrInvalid, redactText(s), why)
	}
	u, err := url.Parse(s)
	switch {
	case err != nil:
		// The error would quote the URL, password included.
		return bad("it cannot be parsed")
	case u.Hostname() == "":
		return bad("it names no host")
	}
	switch u.Scheme {
	case "nats", "tls", "ws", "wss":
		return s, nil
	}
	return bad(fmt.Sprintf("unknown scheme %q", u.Scheme))
}

// redact joins URLs without the part before the @, because a user name there may be a
// token.
func redact(servers []string) string {
	return strings.Join(codec.Map(servers, redactText), ",")
}

func redactText(s string) string {
	if !strings.Contains(s, "://") {
		s = "nats://" + s
	}
	return codec.WithoutLogin(s)
}

// selectedContext returns the context that "nats context select" chose, or "". The library
// that reads contexts cannot distinguish a missing context from a broken one.
func selectedContext(getenv func(string) string) string {
	dir := getenv("XDG_CONFIG_HOME")
	if dir == "" {
		u, err := user.Current()
		if err != nil || u.HomeDir == "" {
			return ""
		}
		dir = filepath.Join(u.HomeDir, ".config")
	}
	data, err := os.ReadFile(filepath.Join(dir, "nats", "context.txt"))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(data))
}
