package base

import (
	"context"

	"github.com/cronce-io/cronce/internal/jobfile"
)

// ReadJobFile reads the file at path, or standard input for "-". What is wrong
// with either can be known without a server. When ctx ends it returns at once, and
// leaves the reading to end with the process: parsing a large file takes seconds, and
// standard input may never end.
func (a *App) ReadJobFile(ctx context.Context, path string, options ...jobfile.Option) (*jobfile.File, error) {
	type answer struct {
		file *jobfile.File
		err  error
	}
	read := make(chan answer, 1)
	go func() {
		var r answer
		if path == "-" {
			r.file, r.err = jobfile.Read("<stdin>", a.Stdin, options...)
		} else {
			r.file, r.err = jobfile.Load(path, options...)
		}
		read <- r
	}()
	select {
	case r := <-read:
		return r.file, Usage(r.err)
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}
