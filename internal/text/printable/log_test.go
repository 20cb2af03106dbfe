package printable

import (
	"errors"
	"log/slog"
	"strings"
	"testing"
)

func TestLogsHoldNoMoreThanAGlimpseOfOtherPeoplesWords(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	log := slog.New(Logs(slog.NewJSONHandler(&out, nil)))
	foreign := "\x1b[31m\u202e" + strings.Repeat("x", 600_000)
	log.With("node", foreign).WithGroup("g").Warn("slot failed", "error", errors.New(foreign), "names", []string{foreign}, "count", 7, slog.Group("in", "side", foreign))
	if n := out.Len(); n > 6*2*maxAttribute {
		t.Errorf("a line of %d bytes", n)
	}
	if line := strings.TrimSuffix(out.String(), "\n"); strings.ContainsFunc(line, Hidden) {
		t.Errorf("a terminal would obey %q", line)
	}
	for _, want := range []string{`"msg":"slot failed"`, `"count":7`, `\\x1b[31m`} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the line does not say %s", want)
		}
	}
}
