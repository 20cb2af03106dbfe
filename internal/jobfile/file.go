package jobfile

import (
	"fmt"
	"io"
	"os"

	"github.com/cronce-io/cronce/internal/jobfile/spec"
)

// Load reads the file at path. Mistakes in it come as Errors; a file that cannot
// be read gives the error of package os, wrapped.
func Load(path string, options ...spec.Option) (*spec.File, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("job file: %w", err)
	}
	defer f.Close()
	return Read(path, f, options...)
}

// Read reads r to its end and is otherwise like Parse. Its errors are those of
// Load.
func Read(name string, r io.Reader, options ...spec.Option) (*spec.File, error) {
	data, err := io.ReadAll(io.LimitReader(r, spec.MaxSize+1))
	if err != nil {
		return nil, fmt.Errorf("job file: %w", err)
	}
	return Parse(name, data, options...)
}

// Parse reads data, at most 4 MiB. name stands in front of every error, which
// are all of type Errors and answer to job.ErrInvalid.
func Parse(name string, data []byte, options ...spec.Option) (*spec.File, error) {
	s := spec.NewSource(name, data)
	if err := s.Err(); err != nil {
		return nil, err
	}
	return spec.DecodeFile(s, parseTree(s), options...)
}
