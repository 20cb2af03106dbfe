package base

import (
	"context"

	"github.com/cronce-io/cronce/internal/jobfile"
	"github.com/cronce-io/cronce/internal/jobfile/spec"
)

// ReadJobFile reads the file at path, or standard input for "-". An error in it is wrong
// usage. If ctx ends, ReadJobFile returns at once, although parsing a large file takes
// seconds and standard input may never end; the reading goroutine ends with the process.
func (a *App) ReadJobFile(ctx context.Context, path string, options ...spec.Option) (*spec.File, error) {
	type answer struct {
		file *spec.File
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
