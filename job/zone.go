package job

import (
	"archive/zip"
	"bytes"
	_ "embed"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/cronce-io/cronce/internal/codec"
	"github.com/cronce-io/cronce/internal/suggest"
)

// zoneData is the IANA time zone database as the Go distribution ships it in
// lib/time/zoneinfo.zip; it is in the public domain. See "Time zones" in the
// package comment for why the system's own is not asked.
//
//go:embed zoneinfo.zip
var zoneData []byte

// zoneDataVersion is the release that zoneData was made from. A test holds it
// against the file.
const zoneDataVersion = "2025c"

// TzdataVersion is the release of the time zone data in this program, like
// "2025c". Nodes whose versions differ may compute different slots.
func TzdataVersion() string { return zoneDataVersion }

// LoadZone returns the time zone of an IANA name, from the data in this program
// and never from the system, so that all nodes of one build agree. Its errors
// suggest the name that was meant and wrap ErrInvalid.
func LoadZone(name string) (*time.Location, error) {
	if load, ok := zones()[name]; ok {
		return load()
	}
	switch {
	case name == "":
		return nil, fmt.Errorf("%w timezone %q: want an IANA name like Europe/Berlin", ErrInvalid, name)
	case name == "Local":
		return nil, fmt.Errorf("%w timezone %q: it means another zone on every machine; want an IANA name like Europe/Berlin", ErrInvalid, name)
	}
	var names []string
	for known := range zones() {
		names = append(names, known)
	}
	if near := suggest.Nearest(name, names); near != "" {
		return nil, fmt.Errorf("%w timezone %q: no such zone; did you mean %s?", ErrInvalid, codec.Clip(name), near)
	}
	return nil, fmt.Errorf("%w timezone %q: no such zone; want an IANA name like Europe/Berlin or UTC", ErrInvalid, codec.Clip(name))
}

// zones maps each name to a function that reads its zone, once: a million jobs
// in one zone share one Location.
var zones = sync.OnceValue(func() map[string]func() (*time.Location, error) {
	all := map[string]func() (*time.Location, error){
		"UTC": func() (*time.Location, error) { return time.UTC, nil },
	}
	archive, err := zip.NewReader(bytes.NewReader(zoneData), int64(len(zoneData)))
	if err != nil {
		return all // a test reads every zone: it cannot come to this
	}
	for _, file := range archive.File {
		if _, known := all[file.Name]; known || file.FileInfo().IsDir() {
			continue
		}
		all[file.Name] = sync.OnceValues(func() (*time.Location, error) { return readZone(file) })
	}
	return all
})

func readZone(file *zip.File) (*time.Location, error) {
	r, err := file.Open()
	if err != nil {
		return nil, fmt.Errorf("timezone %s: %w", file.Name, err)
	}
	defer func() { _ = r.Close() }()
	data, err := io.ReadAll(r)
	if err != nil {
		return nil, fmt.Errorf("timezone %s: %w", file.Name, err)
	}
	return time.LoadLocationFromTZData(file.Name, data)
}

// span is a stretch of instants with one offset: start <= u < end, in seconds
// since 1970. after is the offset from end on.
type span struct {
	start, end    int64
	offset, after int64
}

// spanFrom is the span that begins at start, whether or not the offset changes
// there.
func spanFrom(loc *time.Location, start int64) span {
	s := span{start: start, end: constantUntil(loc, start), offset: offsetAt(loc, start)}
	s.after = s.offset
	// A bound at which only the zone's name changes, or a year of the rule for
	// the far future ends, is none of ours. Three in a row are the most there
	// are; more would only cost time.
	for range 4 {
		if s.end > lastInstant {
			break
		}
		if s.after = offsetAt(loc, s.end); s.after != s.offset {
			break
		}
		s.end = constantUntil(loc, s.end)
	}
	return s
}

func offsetAt(loc *time.Location, u int64) int64 {
	_, offset := time.Unix(u, 0).In(loc).Zone()
	return int64(offset)
}

// constantUntil returns an instant after u before which the offset does not
// change. It is not always the last such instant.
func constantUntil(loc *time.Location, u int64) int64 {
	_, bound := time.Unix(u, 0).In(loc).ZoneBounds()
	if bound.IsZero() {
		return lastInstant + 1
	}
	if end := bound.Unix(); end > u {
		return end
	}
	// On the last day of a leap year that the zone's closing rule covers,
	// ZoneBounds names the beginning of that very day (golang/go#81583). The
	// rule's periods end with the year at the earliest: this day is constant.
	return (floorDiv(u, daySeconds) + 1) * daySeconds
}
