package printable

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/cronce-io/cronce/internal/codec"
)

// maxAttribute bounds the text of one attribute, in bytes.
const maxAttribute = 1000

// Logs returns a handler that clips the text of every attribute and passes the record to h.
// The message is the program's own text and is not clipped.
func Logs(h slog.Handler) slog.Handler { return handler{h} }

type handler struct{ slog.Handler }

func (h handler) Handle(ctx context.Context, r slog.Record) error {
	clipped := slog.NewRecord(r.Time, r.Level, r.Message, r.PC)
	r.Attrs(func(a slog.Attr) bool { clipped.AddAttrs(clip(a)); return true })
	return h.Handler.Handle(ctx, clipped)
}

func (h handler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return handler{h.Handler.WithAttrs(codec.Map(attrs, clip))}
}

func (h handler) WithGroup(name string) slog.Handler { return handler{h.Handler.WithGroup(name)} }

// clip leaves values that are not text as they are: numbers, times, and types that a handler
// encodes by itself.
func clip(a slog.Attr) slog.Attr {
	a.Value = a.Value.Resolve()
	switch v := a.Value; v.Kind() {
	case slog.KindString:
		a.Value = slog.StringValue(Clip(v.String(), maxAttribute))
	case slog.KindGroup:
		a.Value = slog.GroupValue(codec.Map(v.Group(), clip)...)
	case slog.KindAny:
		switch x := v.Any().(type) {
		case error:
			a.Value = slog.StringValue(Clip(x.Error(), maxAttribute))
		case fmt.Stringer:
			a.Value = slog.StringValue(Clip(x.String(), maxAttribute))
		case []string:
			a.Value = slog.AnyValue(codec.Map(x, func(s string) string { return Clip(s, maxAttribute) }))
		}
	}
	return a
}
