package embed

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
)

// bridge is the server's logger. Notices are logged at debug level. The server continues
// after a fatal message; the first one is the reason why a start failed.
type bridge struct {
	log *slog.Logger

	mu    sync.Mutex
	first string
}

func (b *bridge) Noticef(format string, v ...any) { b.log.Debug(fmt.Sprintf(format, v...)) }
func (b *bridge) Debugf(format string, v ...any)  { b.log.Debug(fmt.Sprintf(format, v...)) }
func (b *bridge) Tracef(format string, v ...any)  { b.log.Debug(fmt.Sprintf(format, v...)) }
func (b *bridge) Warnf(format string, v ...any) {
	level := slog.LevelWarn
	if message := fmt.Sprintf(format, v...); strings.HasPrefix(message, "Filestore [") && strings.Contains(message, "tream state") {
		// After a kill, the server rebuilds its index from the messages. That is
		// normal at a restart.
		level = slog.LevelDebug
	}
	b.log.Log(context.Background(), level, fmt.Sprintf(format, v...))
}

func (b *bridge) Errorf(format string, v ...any) { b.log.Error(fmt.Sprintf(format, v...)) }

func (b *bridge) Fatalf(format string, v ...any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.first == "" {
		b.first = fmt.Sprintf(format, v...)
	}
}

func (b *bridge) fatal() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.first
}
