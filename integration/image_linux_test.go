//go:build builds

package integration

import (
	"archive/tar"
	"compress/gzip"
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/cronce-io/cronce/internal/lab/filetest"
)

// descriptor points at a blob of an OCI layout.
type descriptor struct {
	Digest   string
	Platform struct{ OS, Architecture string }
}

type manifest struct {
	Config            descriptor
	Manifests, Layers []descriptor
}

// imageLayout is an image as buildah writes it.
type imageLayout struct {
	t   *testing.T
	dir string
}

func (l imageLayout) blob(d descriptor) string {
	return filepath.Join(l.dir, "blobs", strings.Replace(d.Digest, ":", "/", 1))
}

func (l imageLayout) manifest(d descriptor) manifest {
	l.t.Helper()
	return readJSON[manifest](l.t, filetest.Read(l.t, l.blob(d)))
}

// buildImage builds the image for both architectures.
func buildImage(t *testing.T) imageLayout {
	t.Helper()
	needCommand(t, "buildah")
	if err := exec.Command("unshare", "--mount", "true").Run(); os.Geteuid() != 0 || err != nil {
		lacking(t, "buildah", fmt.Sprintf("it runs as user %d; to mount: %v", os.Geteuid(), err))
	}
	dir := t.TempDir()
	binary := func(arch string) string {
		path := filepath.Join(dir, arch)
		build := exec.Command("go", "build", "-trimpath", "-ldflags=-s -w", "-o", path, "../cmd/cronce")
		build.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH="+arch)
		if out, err := build.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		return path
	}
	storage := filepath.Join(dir, "storage.conf")
	if err := os.WriteFile(storage, fmt.Appendf(nil, "[storage]\ndriver = \"vfs\"\nrunroot = %q\ngraphroot = %q\n", filepath.Join(dir, "run"), filepath.Join(dir, "graph")), 0o644); err != nil {
		t.Fatal(err)
	}
	l := imageLayout{t, filepath.Join(dir, "layout")}
	cmd := exec.Command("../deploy/image/build.sh", binary("amd64"), binary("arm64"), l.dir)
	cmd.Env = append(os.Environ(), "CONTAINERS_STORAGE_CONF="+storage, "BUILDAH_ISOLATION=chroot")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return l
}

// unpack writes the files of an image into a folder, and lists them.
func (l imageLayout) unpack(m manifest, root string) (files []string) {
	l.t.Helper()
	for _, layer := range m.Layers {
		f, err := os.Open(l.blob(layer))
		if err != nil {
			l.t.Fatal(err)
		}
		defer f.Close()
		z, err := gzip.NewReader(f)
		if err != nil {
			l.t.Fatal(err)
		}
		for r := tar.NewReader(z); ; {
			h, err := r.Next()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				l.t.Fatal(err)
			}
			files = append(files, fmt.Sprintf("%04o %d:%d %s", h.Mode&0o7777, h.Uid, h.Gid, h.Name))
			path := filepath.Join(root, filepath.Clean("/"+h.Name))
			if h.Typeflag == tar.TypeDir {
				err = os.MkdirAll(path, 0o755)
			} else {
				err = writeTo(path, r, os.FileMode(h.Mode&0o777))
			}
			if err == nil {
				err = os.Chown(path, h.Uid, h.Gid)
			}
			if err != nil {
				l.t.Fatal(err)
			}
		}
	}
	slices.Sort(files)
	return files
}

func writeTo(path string, from io.Reader, mode os.FileMode) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY, mode)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, from)
	return errors.Join(err, f.Close())
}

// readOnly is a shell script that enters the unpacked image as a container does: a root that
// is read-only, /proc, /dev, and the user of the image.
const readOnly = `mount --bind "$0" "$0" && mount -t proc proc "$0/proc" && mount --rbind /dev "$0/dev" &&
mount -o remount,bind,ro "$0" && exec chroot --userspec=65532:65532 "$0" /usr/bin/cronce "$@"`

// imageFiles is all that the image has.
var imageFiles = []string{
	"0644 0:0 etc/ssl/certs/ca-certificates.crt", "0700 65532:65532 data/", "0755 0:0 etc/", "0755 0:0 etc/ssl/", "0755 0:0 etc/ssl/certs/",
	"0755 0:0 usr/", "0755 0:0 usr/bin/", "0755 0:0 usr/bin/cronce",
}

func TestImageRunsANodeAndTheDashboardWithAReadOnlyRoot(t *testing.T) {
	t.Parallel()
	l := buildImage(t)
	index := readJSON[manifest](t, filetest.Read(t, filepath.Join(l.dir, "index.json")))
	roots, platforms := map[string]string{}, []string{}
	for _, image := range l.manifest(index.Manifests[0]).Manifests {
		platforms = append(platforms, image.Platform.OS+"/"+image.Platform.Architecture)
		roots[image.Platform.Architecture] = l.checked(image)
	}
	if !slices.Equal(platforms, []string{"linux/amd64", "linux/arm64"}) {
		t.Fatalf("the image is for %v", platforms)
	}
	root := roots[runtime.GOARCH]
	if root == "" {
		t.Skipf("needs a machine for which the image is: %v", platforms)
	}

	s := newServedSite(t)
	for _, dir := range []string{"proc", "dev"} { // a container's runtime adds them
		if err := os.Mkdir(filepath.Join(root, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	jobs := "version: 1\njobs:\n  - {name: tick, schedule: '* * * * * *', action: {exec: [/usr/bin/cronce, version]}}\n"
	if err := os.WriteFile(filepath.Join(root, "etc/jobs.yaml"), []byte(jobs), 0o644); err != nil {
		t.Fatal(err)
	}
	enter := func(name string, args ...string) *process {
		return start(t, name, []string{"PATH=" + os.Getenv("PATH"), "CRONCE_STORE=/data", "HOME=/data"}, nil,
			"/usr/bin/env", slices.Concat([]string{"unshare", "--mount", "/bin/sh", "-c", readOnly, root}, args, []string{"--server", s.url, "--metrics-addr", "127.0.0.1:0"})...)
	}
	node := enter("node", "run", "-f", "/etc/jobs.yaml")
	node.says("slot succeeded")
	ui := enter("ui", "ui", "--listen", "127.0.0.1:0", "-o", "json")
	eventually(t, "the dashboard's address", func() bool { return strings.HasSuffix(ui.stdout(), "}\n") })
	url := readJSON[struct{ URL string }](t, []byte(ui.stdout())).URL
	for _, path := range []string{"/jobs/tick", "/api/v1/jobs/tick", "/readyz"} { // one address for all
		resp, err := http.Get(url + path)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			t.Errorf("the dashboard answers %s with %d", path, resp.StatusCode)
		}
	}
	term(ui)
	term(node)
}

// checked unpacks the image of one architecture, checks what it has and how it runs, and returns
// its root.
func (l imageLayout) checked(image descriptor) (root string) {
	l.t.Helper()
	m, arch := l.manifest(image), image.Platform.Architecture
	config := readJSON[struct {
		Config struct {
			User            string
			Entrypoint, Env []string
		}
	}](l.t, filetest.Read(l.t, l.blob(m.Config))).Config
	if config.User != "65532:65532" || !slices.Equal(config.Entrypoint, []string{"/usr/bin/cronce"}) || !slices.Contains(config.Env, "CRONCE_STORE=/data") {
		l.t.Errorf("the image for %s runs %+v", arch, config)
	}
	root = filepath.Join(shortDir(l.t), "root")
	if files := l.unpack(m, root); !slices.Equal(files, imageFiles) {
		l.t.Errorf("the image for %s has\n%s\nwant\n%s", arch, strings.Join(files, "\n"), strings.Join(imageFiles, "\n"))
	}
	binary, err := elf.Open(filepath.Join(root, "usr/bin/cronce"))
	if err != nil {
		l.t.Fatal(err)
	}
	defer binary.Close()
	if want := map[string]elf.Machine{"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64}[arch]; binary.Machine != want {
		l.t.Errorf("the image for %s has a program for %v", arch, binary.Machine)
	}
	if libraries, err := binary.ImportedLibraries(); err != nil || len(libraries) > 0 {
		l.t.Errorf("the program for %s needs %v: %v", arch, libraries, err)
	}
	return root
}
