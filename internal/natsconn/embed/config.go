package embed

import (
	"cmp"
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

// DefaultListen is the address of the embedded server, where every process looks for it.
const DefaultListen = "127.0.0.1:4222"

// Config configures the embedded server.
type Config struct {
	// Listen is host:port. Empty: DefaultListen. Port 0 selects a free one. Use port 0 only
	// with Start, because no other process could find the port to join.
	Listen string

	// Store is the directory of the server's files, created with mode 0700 when
	// absent. Empty: DefaultStore.
	Store string

	// MaxPayload is the largest message that the server accepts, in bytes. Use it only with
	// Start. Zero: the server's default of 1 MiB.
	MaxPayload int

	// Peer makes the server a member of a cluster. Use it only with Start. Nil: no cluster.
	Peer *Peer

	// Logger logs the server's warnings, and which process serves. Nil: nothing is logged.
	Logger *slog.Logger
}

// Peer is a server's part in a cluster.
type Peer struct {
	// Name identifies the server in the cluster. It must be the same at every start.
	Name string

	// Listen is the host:port of its cluster port. Routes lists the cluster ports of all
	// members.
	Listen string
	Routes []string
}

// Validate checks the configuration without side effects. Its errors wrap job.ErrInvalid.
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
	c.Listen = cmp.Or(c.Listen, DefaultListen)
	c.Logger = cmp.Or(c.Logger, slog.New(slog.DiscardHandler))
	if c.Store == "" {
		store, err := DefaultStore()
		if err != nil {
			return c, err
		}
		c.Store = store
	}
	// Errors and logs show the path, and "." would not help there.
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
		return "", errors.New("no directory for the embedded server's files: %LocalAppData% is not set; name one with --store DIR")
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return "", fmt.Errorf("no directory for the embedded server's files: %w; name one with --store DIR", err)
	}
	if runtime.GOOS == "darwin" {
		return filepath.Join(home, "Library", "Application Support", "cronce"), nil
	}
	return filepath.Join(home, ".local", "share", "cronce"), nil
}
