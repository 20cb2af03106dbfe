package jobfile

import (
	"fmt"
	"io"
	"os"

	"github.com/cronce-io/cronce/internal/jobfile/spec"
)

// Load reads the file at path. If the file has mistakes, the error is a spec.Errors. If it cannot
// be read, the error wraps that of package os.
func Load(path string, options ...spec.Option) (*spec.File, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("job file: %w", err)
	}
	defer f.Close()
	return Read(path, f, options...)
}

// Read parses what r contains. Its errors are those of Load.
func Read(name string, r io.Reader, options ...spec.Option) (*spec.File, error) {
	data, err := io.ReadAll(io.LimitReader(r, spec.MaxSize+1))
	if err != nil {
		return nil, fmt.Errorf("job file: %w", err)
	}
	return Parse(name, data, options...)
}

// Parse parses data, at most 4 MiB. All errors are of type spec.Errors and wrap job.ErrInvalid.
// Each begins with name.
func Parse(name string, data []byte, options ...spec.Option) (*spec.File, error) {
	s := spec.NewSource(name, data)
	if err := s.Err(); err != nil {
		return nil, err
	}
	return spec.DecodeFile(s, parseTree(s), options...)
}
