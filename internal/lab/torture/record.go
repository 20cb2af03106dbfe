package torture

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/cronce-io/cronce/internal/fleet/boot"
)

// What a line of the record tells.
const (
	lineUp     = "up"     // the process is ready for a SIGHUP
	lineStart  = "start"  // a handler was called
	lineCancel = "cancel" // its context has ended, for Cause
	lineEnd    = "end"    // it is about to return, with Result
	linePause  = "pause"  // the process did not run from From to Boot
	lineOrder  = "order"  // a trigger of the slot was acknowledged
	lineFault  = "fault"  // the torture did Kind to Of from From to Boot
)

// Names that stand where a line names a process.
const (
	tortureProcess = "torture" // the torture itself
	serverProcess  = "servers" // the servers, whichever
)

// Results of a handler.
const (
	resultOK        = "ok"
	resultError     = "error"
	resultPermanent = "permanent"
	resultLater     = "later" // job.RetryAfter
	resultPanic     = "panic"
	resultDie       = "die" // it ends its own process
)

// Line is one line of the record: what a worker did, in its own words, at a time
// that can be compared with every other line's, since all processes are on one
// machine.
type Line struct {
	What    string        `json:"what"`
	Process string        `json:"process"` // "w1.3": the third life of worker 1
	Boot    time.Duration `json:"boot"`    // reading of boot.Now
	From    time.Duration `json:"from,omitempty"`
	Slot    string        `json:"slot,omitempty"`
	Attempt int           `json:"attempt,omitempty"`
	Fence   uint64        `json:"fence,omitempty"`
	Node    string        `json:"node,omitempty"`
	Result  string        `json:"result,omitempty"`
	Cause   string        `json:"cause,omitempty"`

	// Of a fault: its kind, the life of the process or the stream that it hit, and
	// the delay of a Lag. A fault of the servers has no Of.
	Kind  Kind          `json:"kind,omitempty"`
	Of    string        `json:"of,omitempty"`
	Delay time.Duration `json:"delay,omitempty"`
}

// recorder appends the lines of one process to its file. A line is one write, so
// a KILL leaves it whole or not there at all; nothing is synced, for no machine
// dies here. It is safe for concurrent use.
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

// add appends a line, stamped now. A worker that cannot write down what it does
// must not do it.
func (r *recorder) add(l Line) error {
	if l.Process == "" {
		l.Process = r.process
	}
	l.Boot = boot.Now()
	data, err := json.Marshal(l)
	if err != nil {
		return err
	}
	_, err = r.file.Write(append(data, '\n'))
	return err
}

func (r *recorder) close() { _ = r.file.Close() }

// watch writes a line whenever the process was not running for longer than most,
// until stop is closed: stopped, or starved by a machine that has too much to do.
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
			_ = r.add(Line{What: linePause, From: last}) // the next start tells that nothing can be written
		}
		last = now
	}
}

// readRecord reads every file of the record.
func readRecord(dir string) ([]Line, error) {
	paths, err := filepath.Glob(filepath.Join(dir, "*.jsonl"))
	if err != nil {
		return nil, err
	}
	var lines []Line
	for _, path := range paths {
		more, _, err := readLines(path, 0)
		if err != nil {
			return nil, err
		}
		lines = append(lines, more...)
	}
	return lines, nil
}

// readLines reads the whole lines after offset, and says where it ended. A file
// that is not there yet has none.
func readLines(path string, offset int64) ([]Line, int64, error) {
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
	var lines []Line
	for r := bufio.NewReader(f); ; {
		text, err := r.ReadString('\n')
		if err != nil {
			return lines, offset, nil // the end, or a line that is still being written
		}
		offset += int64(len(text))
		var l Line
		if err := json.Unmarshal([]byte(strings.TrimSpace(text)), &l); err != nil {
			return nil, offset, fmt.Errorf("record %s: %q: %w", path, text, err)
		}
		lines = append(lines, l)
	}
}
