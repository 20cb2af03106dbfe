package base

import (
	"context"

	"github.com/cronce-io/cronce/internal/jobfile"
	"github.com/cronce-io/cronce/internal/jobfile/spec"
)

// ReadJobFile reads the file at path, or standard input for "-". An error in it is wrong
// usage.
func (a *App) ReadJobFile(ctx context.Context, path string, options ...spec.Option) (*spec.File, error) {
	file, err := ReadUntil(ctx, func() (*spec.File, error) {
		if path == "-" {
			return jobfile.Read("<stdin>", a.Stdin, options...)
		}
		return jobfile.Load(path, options...)
	})
	return file, Usage(err)
}

// ReadUntil calls read, which reads standard input or a file. If ctx ends, ReadUntil returns at
// once, although parsing a large file takes seconds and standard input may never end; the reading
// goroutine ends with the process.
func ReadUntil[T any](ctx context.Context, read func() (T, error)) (T, error) {
	type answer struct {
		value T
		err   error
	}
	answers := make(chan answer, 1)
	go func() {
		value, err := read()
		answers <- answer{value, err}
	}()
	select {
	case r := <-answers:
		return r.value, r.err
	case <-ctx.Done():
		var none T
		return none, ctx.Err()
	}
}
