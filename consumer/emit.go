package consumer

import (
	"context"
	"log/slog"
	"strings"

	"github.com/cronce-io/cronce/internal/codec"
	"github.com/cronce-io/cronce/internal/core"
	"github.com/cronce-io/cronce/job"
)

// emit tells of the state that a record was just given.
func (c *Consumer) emit(rec job.Record, revision uint64) {
	c.emitKind(job.EventKind(rec.State), rec, rec.Fence(revision), "")
	if rec.State == job.Succeeded && !c.cfg.Logger.Enabled(context.Background(), slog.LevelInfo) {
		return // most slots, most of the time
	}
	log := c.cfg.Logger.With("slot", rec.Slot.ID(), "attempt", rec.Attempt)
	if rec.State == job.Succeeded && rec.Shards > 0 {
		log.Info("slot succeeded", "shards", rec.Shards)
		return
	}
	if core.Released(rec) {
		log.Info("slot released before it was started")
		return
	}
	switch rec.State {
	case job.Succeeded:
		a := rec.Attempts[len(rec.Attempts)-1]
		withOutput(log, firstLine(rec.Output)).Info("slot succeeded", "took", a.Finished.Sub(a.Started))
	case job.Missed:
		log.Debug("slot missed", "reason", rec.Error) // thousands, after an outage
	case job.Retrying:
		withOutput(log, lastLine(rec.Output)).Warn("attempt failed", "again", rec.RetryAt, "error", rec.Error)
	default:
		withOutput(log, lastLine(rec.Output)).Warn("slot "+string(rec.State), "reason", rec.Error)
	}
}

func (c *Consumer) emitKind(kind job.EventKind, rec job.Record, fence uint64, peer string) {
	if kind == job.EventTakeover {
		c.cfg.Logger.Warn("took a slot over from a dead node", "slot", rec.Slot.ID(), "attempt", rec.Attempt, "from", peer)
	}
	c.cfg.Emit(job.Event{
		V: codec.Version, Kind: kind, Time: c.cfg.Now().UTC(), Node: c.cfg.Node.Name(),
		ID: rec.Slot.ID(), Job: rec.Slot.Job, Attempt: rec.Attempt, Fence: fence, Error: rec.Error, Peer: peer,
	})
}

// withOutput adds the glimpse of a handler's output that goes into the log: of
// what went well how it began, of what failed how it ended.
func withOutput(log *slog.Logger, line string) *slog.Logger {
	if line == "" {
		return log
	}
	return log.With("output", line)
}

func firstLine(output string) string {
	line, _, _ := strings.Cut(strings.TrimSpace(output), "\n")
	return glimpse(line)
}

func lastLine(output string) string {
	output = strings.TrimSpace(output)
	return glimpse(output[strings.LastIndexByte(output, '\n')+1:])
}

func glimpse(line string) string {
	const most = 80
	if len(line) > most {
		line = strings.ToValidUTF8(line[:most], "") + "..."
	}
	return line
}
