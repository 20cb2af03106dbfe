//go:build builds

package integration

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"

	"github.com/cronce-io/cronce/internal/lab/filetest"
)

// release is the part of .goreleaser.yaml about binaries and packages.
type release struct {
	Builds []struct {
		Main                         string
		Goos, Goarch, Flags, Ldflags []string
		Env                          []string
	}
	Nfpms []map[string]any
}

// checkout is a copy of the last commit, in which a release is built.
type checkout struct {
	t    *testing.T
	dir  string
	env  []string
	time string // of the commit, in seconds
}

// newCheckout clones the repository into a folder of this name, in a new home. Its commands run with this time zone
// and this umask.
func newCheckout(t *testing.T, name, zone, umask string) *checkout {
	t.Helper()
	home := t.TempDir()
	c := &checkout{t: t, dir: filepath.Join(home, name)}
	c.env = append(os.Environ(), "TMPDIR="+home, "TZ="+zone, "GOFLAGS=", "UMASK="+umask, "GIT_CONFIG_COUNT=1", "GIT_CONFIG_KEY_0=safe.directory", "GIT_CONFIG_VALUE_0=*")
	root, err := filepath.Abs("..")
	if err != nil {
		t.Fatal(err)
	}
	c.run(home, "git", "clone", "-q", root, c.dir)
	c.time = strings.TrimSpace(c.run(c.dir, "git", "log", "-1", "--format=%ct"))
	return c
}

// run runs a program in dir, with the umask of the checkout, and returns what it prints.
func (c *checkout) run(dir, name string, args ...string) string {
	c.t.Helper()
	cmd := exec.Command("/bin/sh", append([]string{"-c", `umask "$UMASK" && exec "$0" "$@"`, name}, args...)...)
	cmd.Dir, cmd.Env = dir, c.env
	out, err := cmd.CombinedOutput()
	if err != nil {
		c.t.Fatalf("%s %v: %v\n%s", name, args, err, out)
	}
	return string(out)
}

// build builds the binary, the bill of materials and the packages as the release does, for this system. It returns
// their paths.
func (c *checkout) build() (files []string) {
	c.t.Helper()
	var r release
	if err := yaml.Unmarshal(filetest.Read(c.t, filepath.Join(c.dir, ".goreleaser.yaml")), &r); err != nil {
		c.t.Fatal(err)
	}
	b := r.Builds[0]
	c.env = append(c.env, b.Env...)
	args := slices.Concat([]string{"build", "-o", "dist/cronce"}, b.Flags, []string{"-ldflags=" + strings.Join(b.Ldflags, " "), b.Main})
	c.run(c.dir, "go", args...)
	c.run(c.dir, "go", "test", "-trimpath", "./cmd/cronce", "-count=1", "-run", "^TestManualsOfPackages$", "-manuals", filepath.Join(c.dir, "build"), "-date", c.time)
	c.run(filepath.Join(c.dir, "dist"), "go", "run", "-trimpath", "github.com/cronce-io/cronce/deploy/packages/sbom", "cronce", "cronce.cdx.json") // as goreleaser does
	files = []string{"dist/cronce", "dist/cronce.cdx.json"}
	for _, format := range []string{"deb", "rpm"} {
		c.run(c.dir, "nfpm", "package", "--config", c.packaging(r.Nfpms[0], "0.0.0"), "--packager", format, "--target", "dist/cronce."+format)
		files = append(files, "dist/cronce."+format)
	}
	// A later version, to upgrade to.
	c.run(c.dir, "nfpm", "package", "--config", c.packaging(r.Nfpms[0], "0.0.1"), "--packager", "deb", "--target", "dist/upgrade.deb")
	return files
}

// packaging writes the configuration of nfpm that goreleaser derives from its own.
func (c *checkout) packaging(section map[string]any, version string) string {
	c.t.Helper()
	own := map[string]any{"name": section["package_name"], "arch": "amd64", "platform": "linux", "version": version}
	for key, value := range section {
		if !slices.Contains([]string{"package_name", "formats", "file_name_template", "bindir", "mtime"}, key) {
			own[key] = value
		}
	}
	contents, ok := section["contents"].([]any)
	if !ok {
		c.t.Fatalf("the packages have no contents: %v", section)
	}
	own["contents"] = append(slices.Clone(contents), map[string]any{"src": "dist/cronce", "dst": fmt.Sprint(section["bindir"], "/cronce"), "file_info": map[string]any{"mode": 0o755}})
	at := strings.TrimSpace(c.run(c.dir, "date", "-u", "-d", "@"+c.time, "+%Y-%m-%dT%H:%M:%SZ"))
	own["mtime"] = at
	text, err := yaml.Marshal(own)
	if err != nil {
		c.t.Fatal(err)
	}
	path := filepath.Join(c.dir, "dist", "nfpm.yaml")
	if err := os.WriteFile(path, text, 0o644); err != nil {
		c.t.Fatal(err)
	}
	return path
}

// Two builds of one commit are equal byte by byte, although the folder, the time zone and the umask differ.
func TestReleasesOfOneCommitAreEqual(t *testing.T) {
	t.Parallel()
	for _, program := range []string{"git", "nfpm", "dpkg-deb"} {
		needCommand(t, program)
	}
	one, other := newCheckout(t, "one", "UTC", "022"), newCheckout(t, "another-place", "Asia/Tokyo", "077")
	files := one.build()
	other.build()
	for _, file := range files {
		a, b := string(filetest.Read(t, filepath.Join(one.dir, file))), string(filetest.Read(t, filepath.Join(other.dir, file)))
		if a != b {
			t.Errorf("%s differs: %x and %x, %d and %d bytes", file, sha256.Sum256([]byte(a)), sha256.Sum256([]byte(b)), len(a), len(b))
		}
	}
	t.Run("package", func(t *testing.T) { checkPackage(t, one) })
	t.Run("life of a package", func(t *testing.T) { checkLifeOfPackage(t, one) })
	t.Run("bill of materials", func(t *testing.T) { checkBill(t, one) })
}

// checkPackage looks at what the package for Debian installs.
func checkPackage(t *testing.T, c *checkout) {
	listing := c.run(c.dir, "dpkg-deb", "-c", "dist/cronce.deb")
	for _, want := range []string{
		"-rwxr-xr-x root/root ./usr/bin/cronce", "-rw-r--r-- root/root ./usr/lib/systemd/system/cronce.service", "-rw-r--r-- root/root ./usr/lib/systemd/system/cronce-server.service",
		"-rw-r--r-- root/root ./usr/lib/sysusers.d/cronce.conf", "drwxr-x--- root/root ./etc/cronce/", "-rw-r----- root/root ./etc/cronce/cronce.env", "-rw-r----- root/root ./etc/cronce/server.env", "-rw-r--r-- root/root ./usr/lib/systemd/system/cronce-ui.service", "-rw-r----- root/root ./etc/cronce/ui.env",
		"-rw-r--r-- root/root ./usr/share/man/man1/cronce-run.1.gz", "-rw-r--r-- root/root ./usr/share/bash-completion/completions/cronce",
	} {
		mode, path, _ := strings.Cut(want, " ./")
		if !slices.ContainsFunc(strings.Split(listing, "\n"), func(line string) bool {
			return strings.HasPrefix(line, mode) && strings.HasSuffix(line, " ./"+path)
		}) {
			t.Errorf("the package has no %q:\n%s", want, listing)
		}
	}
	control := c.run(c.dir, "dpkg-deb", "--ctrl-tarfile", "dist/cronce.deb")
	for _, script := range []string{"postinst", "prerm", "postrm", "conffiles"} {
		if !strings.Contains(control, script) {
			t.Errorf("the package has no %s", script)
		}
	}
}

// checkBill compares the bill of materials with what the Go command says of the binary.
func checkBill(t *testing.T, c *checkout) {
	var bill struct {
		Components []struct{ Name, Version string }
	}
	if err := json.Unmarshal(filetest.Read(t, filepath.Join(c.dir, "dist/cronce.cdx.json")), &bill); err != nil {
		t.Fatal(err)
	}
	has := map[string]bool{}
	for _, m := range bill.Components {
		has[m.Name+" "+m.Version] = true
	}
	modules := 0
	for line := range bytes.Lines([]byte(c.run(c.dir, "go", "version", "-m", "dist/cronce"))) {
		if fields := strings.Fields(string(line)); len(fields) >= 3 && fields[0] == "dep" {
			modules++
			if !has[fields[1]+" "+fields[2]] {
				t.Errorf("the bill of materials lacks %s %s", fields[1], fields[2])
			}
		}
	}
	if modules == 0 || len(bill.Components) != modules+1 {
		t.Errorf("the bill has %d components; the binary has %d modules and the standard library", len(bill.Components), modules)
	}
}
