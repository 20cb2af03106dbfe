// Package tzdata holds the time zone database that this program computes slots with.
//
// The rules of a zone never come from the system, so that all nodes of one build compute
// the same slots (docs/decisions/0070-time-zone-data-in-the-program.md).
package tzdata

import (
	"archive/zip"
	"bytes"
	_ "embed"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/cronce-io/cronce/internal/codec"
)

// Version is the release of the time zone database in this program. Nodes whose
// versions differ may compute different slots.
const Version = "2025c"

// archive is lib/time/zoneinfo.zip of the Go distribution. It is in the public domain.
//
//go:embed zoneinfo.zip
var archive []byte

// Load returns the time zone with this IANA name. Its errors wrap codec.ErrInvalid, and
// suggest the name that was probably meant.
func Load(name string) (*time.Location, error) {
	if load, ok := zones()[name]; ok {
		return load()
	}
	switch {
	case name == "":
		return nil, fmt.Errorf("%w timezone %q: want an IANA name like Europe/Berlin", codec.ErrInvalid, name)
	case name == "Local":
		return nil, fmt.Errorf("%w timezone %q: it means another zone on every machine; want an IANA name like Europe/Berlin", codec.ErrInvalid, name)
	}
	if near := meant(name); near != "" {
		return nil, fmt.Errorf("%w timezone %q: no such zone; did you mean %s?", codec.ErrInvalid, codec.Clip(name), near)
	}
	return nil, fmt.Errorf("%w timezone %q: no such zone; want an IANA name like Europe/Berlin or UTC", codec.ErrInvalid, codec.Clip(name))
}

// Names returns the names of all zones, sorted.
func Names() []string { return slices.Sorted(maps.Keys(zones())) }

// zones maps each name to a function that reads its zone once, so that a million jobs
// in one zone share one Location.
var zones = sync.OnceValue(func() map[string]func() (*time.Location, error) {
	all := map[string]func() (*time.Location, error){
		"UTC": func() (*time.Location, error) { return time.UTC, nil },
	}
	files, err := zip.NewReader(bytes.NewReader(archive), int64(len(archive)))
	if err != nil {
		return all // unreachable: a test reads every zone
	}
	for _, file := range files.File {
		if _, known := all[file.Name]; known || file.FileInfo().IsDir() {
			continue
		}
		all[file.Name] = sync.OnceValues(func() (*time.Location, error) { return readZone(files, file.Name) })
	}
	return all
})

func readZone(files *zip.Reader, name string) (*time.Location, error) {
	data, err := fs.ReadFile(files, name)
	if err != nil {
		return nil, fmt.Errorf("timezone %s: %w", name, err)
	}
	return time.LoadLocationFromTZData(name, data)
}
