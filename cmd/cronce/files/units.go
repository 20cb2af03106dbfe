package files

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/cronce-io/cronce/cmd/cronce/base"
	"github.com/cronce-io/cronce/internal/jobfile/migrate"
	"github.com/cronce-io/cronce/internal/jobfile/migrate/unitfile"
)

// unitFolders are the folders of systemd's units, the ones that count most first.
var unitFolders = []string{"/etc/systemd/system", "/run/systemd/system", "/usr/local/lib/systemd/system", "/usr/lib/systemd/system", "/lib/systemd/system"}

// unitReader reads files of units, and what belongs to them.
type unitReader struct {
	app   *base.App
	paths []string // that were read or are being read
	units []unitfile.File
}

// readUnits reads the files, the drop-ins of their units, and the services that their timers start.
func readUnits(ctx context.Context, a *base.App, paths []string) ([]unitfile.File, error) {
	r := unitReader{app: a}
	for _, path := range paths {
		if err := r.read(ctx, path); err != nil {
			return nil, err
		}
	}
	for _, path := range paths {
		if filepath.Ext(path) != ".timer" {
			continue
		}
		service := migrate.ServiceOf(r.units, filepath.Base(path))
		for _, name := range []string{service, migrate.Template(service)} {
			if name == "" {
				continue
			}
			if err := r.readFirst(ctx, foldersOf(path), name); err != nil {
				return nil, err
			}
		}
	}
	if len(r.units) == 1 {
		r.units[0].File = "" // notes need not name it
	}
	return r.units, nil
}

// read reads a file and the drop-ins of its unit, unless it was read before.
func (r *unitReader) read(ctx context.Context, path string) error {
	clean := filepath.Clean(path)
	if slices.Contains(r.paths, clean) {
		return nil
	}
	r.paths = append(r.paths, clean)
	text, err := readText(ctx, r.app, path)
	if err != nil {
		return err
	}
	r.units = append(r.units, unitfile.File{Path: filepath.ToSlash(path), Text: string(text), File: path})
	if ext := filepath.Ext(path); ext != ".timer" && ext != ".service" {
		return nil
	}
	return r.readDropIns(ctx, foldersOf(path), filepath.Base(path))
}

// readFirst reads the file of a unit, from the first folder that has it. If none has it, the drop-ins may
// be those of an instance of a template.
func (r *unitReader) readFirst(ctx context.Context, folders []string, name string) error {
	for _, folder := range folders {
		path := filepath.Join(folder, name)
		if _, err := os.Stat(path); err == nil {
			return r.read(ctx, path)
		} else if !errors.Is(err, fs.ErrNotExist) {
			return base.Usage(err)
		}
	}
	return r.readDropIns(ctx, folders, name)
}

// readDropIns reads the drop-ins of a unit. If two folders have one of the same name, the first counts.
func (r *unitReader) readDropIns(ctx context.Context, folders []string, name string) error {
	seen := map[string]bool{}
	for _, folder := range folders {
		found, err := filepath.Glob(filepath.Join(globQuoted(folder), globQuoted(name)+".d", "*.conf"))
		if err != nil {
			return base.Usage(err)
		}
		for _, path := range found {
			if seen[filepath.Base(path)] {
				continue
			}
			seen[filepath.Base(path)] = true
			if err := r.read(ctx, path); err != nil {
				return err
			}
		}
	}
	return nil
}

// globQuoted quotes what filepath.Glob would read as a pattern.
func globQuoted(path string) string {
	return strings.NewReplacer("*", "[*]", "?", "[?]", "[", "[[]").Replace(path)
}

// foldersOf returns the folders in which systemd would look for what belongs to the unit of a file.
func foldersOf(path string) []string {
	folder := filepath.Dir(path)
	if slices.Contains(unitFolders, folder) {
		return unitFolders
	}
	return []string{folder}
}
