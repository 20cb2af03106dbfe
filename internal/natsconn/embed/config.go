package embed

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strconv"

	"github.com/cronce-io/cronce/job"
)

// DefaultListen is where the embedded server listens, and where everybody looks
// for it.
const DefaultListen = "127.0.0.1:4222"

// Config says where the embedded server listens and keeps its files.
type Config struct {
	// Listen is host:port. Empty: DefaultListen. Port 0 is any free one, which
	// only Start can use: nobody could find it to join.
	Listen string

	// Store is the directory of the server's files, created with mode 0700 when
	// absent. Empty: DefaultStore.
	Store string

	// MaxPayload is the largest message that the server takes, in bytes; only Start
	// can. Zero: the server's default of 1 MiB.
	MaxPayload int

	// Peer makes the server one of a cluster; only Start can. Nil: it is alone.
	Peer *Peer

	// Logger gets what the server warns of, and who serves. Nil: nothing.
	Logger *slog.Logger
}

// Peer is a server's part in a cluster.
type Peer struct {
	// Name is the server's, the same at every start: the others know it by it.
	Name string

	// Listen is the host:port on which it listens for the others, Routes where
	// they and it do.
	Listen string
	Routes []string
}

// Validate checks what can be known without touching anything. Its errors wrap
// job.ErrInvalid.
func (c Config) Validate() error {
	if c.Listen == "" {
		return nil
	}
	_, port, err := net.SplitHostPort(c.Listen)
	if err == nil {
		_, err = strconv.ParseUint(port, 10, 16)
	}
	if err != nil {
		return fmt.Errorf("%w listen address %q: want HOST:PORT like %s", job.ErrInvalid, c.Listen, DefaultListen)
	}
	return nil
}

func (c Config) withDefaults() (Config, error) {
	if err := c.Validate(); err != nil {
		return c, err
	}
	if c.Listen == "" {
		c.Listen = DefaultListen
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.Store == "" {
		store, err := DefaultStore()
		if err != nil {
			return c, err
		}
		c.Store = store
	}
	// The path stands in errors and in logs, where "." says nothing.
	store, err := filepath.Abs(c.Store)
	c.Store = store
	return c, err
}

// DefaultStore is the directory for this user's data on this system:
// $XDG_DATA_HOME/cronce or ~/.local/share/cronce, ~/Library/Application
// Support/cronce on macOS, %LocalAppData%\cronce on Windows.
func DefaultStore() (string, error) {
	if dir := os.Getenv("XDG_DATA_HOME"); filepath.IsAbs(dir) {
		return filepath.Join(dir, "cronce"), nil
	}
	if runtime.GOOS == "windows" {
		if dir := os.Getenv("LocalAppData"); dir != "" {
			return filepath.Join(dir, "cronce"), nil
		}
		return "", errors.New("no place for the embedded server's files: %LocalAppData% is not set; name one with --store DIR")
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return "", fmt.Errorf("no place for the embedded server's files: %w; name one with --store DIR", err)
	}
	if runtime.GOOS == "darwin" {
		return filepath.Join(home, "Library", "Application Support", "cronce"), nil
	}
	return filepath.Join(home, ".local", "share", "cronce"), nil
}
