package torture

import (
	"bufio"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/cronce-io/cronce/internal/fleet/boot"
	"github.com/cronce-io/cronce/lab/torture/promise"
)

// recorder appends the lines of one process to its file. A line is one write, so a KILL
// cannot leave half a line. Nothing is synced, since no machine fails here. It is safe for
// concurrent use.
type recorder struct {
	file    *os.File
	process string
}

func newRecorder(path, process string) (*recorder, error) {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return nil, fmt.Errorf("record: %w", err)
	}
	return &recorder{f, process}, nil
}

// add appends a line with the current time. If a handler's start cannot be recorded, the handler
// must not go on.
func (r *recorder) add(l promise.Line) error {
	l.Process = cmp.Or(l.Process, r.process)
	l.Boot = boot.Now()
	data, err := json.Marshal(l)
	if err != nil {
		return err
	}
	_, err = r.file.Write(append(data, '\n'))
	return err
}

func (r *recorder) close() { _ = r.file.Close() }

// watch records each period of more than 150 ms in which the process did not run, until stop is
// closed. In such a period the process was stopped, or a busy machine starved it.
func (r *recorder) watch(stop <-chan struct{}) {
	const look, most = 20 * time.Millisecond, 150 * time.Millisecond
	tick := time.NewTicker(look)
	defer tick.Stop()
	for last := boot.Now(); ; {
		select {
		case <-stop:
			return
		case <-tick.C:
		}
		now := boot.Now()
		if now-last > most {
			_ = r.add(promise.Line{What: promise.LinePause, From: last}) // if this fails, the next handler fails too
		}
		last = now
	}
}

func readRecord(dir string) ([]promise.Line, error) {
	paths, err := filepath.Glob(filepath.Join(dir, "*.jsonl"))
	if err != nil {
		return nil, err
	}
	var lines []promise.Line
	for _, path := range paths {
		more, _, err := readLines(path, 0)
		if err != nil {
			return nil, err
		}
		lines = append(lines, more...)
	}
	return lines, nil
}

// readLines reads the whole lines after offset, and returns where it stopped. A file that
// does not exist has no lines.
func readLines(path string, offset int64) ([]promise.Line, int64, error) {
	f, err := os.Open(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil, offset, nil
	}
	if err != nil {
		return nil, offset, fmt.Errorf("record: %w", err)
	}
	defer f.Close()
	if _, err := f.Seek(offset, 0); err != nil {
		return nil, offset, fmt.Errorf("record: %w", err)
	}
	var lines []promise.Line
	for r := bufio.NewReader(f); ; {
		text, err := r.ReadString('\n')
		if err != nil {
			return lines, offset, nil // the end, or a line that is still being written
		}
		offset += int64(len(text))
		var l promise.Line
		if err := json.Unmarshal([]byte(strings.TrimSpace(text)), &l); err != nil {
			return nil, offset, fmt.Errorf("record %s: %q: %w", path, text, err)
		}
		lines = append(lines, l)
	}
}
