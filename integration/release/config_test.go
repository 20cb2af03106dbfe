package release_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/goreleaser/goreleaser/v2/pkg/config"
)

const root = "../.."

// The configuration is read as "goreleaser check" reads it first: a field that goreleaser does not know
// is an error.
func TestReleaseConfigurationIsUnderstoodByGoreleaser(t *testing.T) {
	t.Parallel()
	p, err := config.Load(filepath.Join(root, ".goreleaser.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	if len(p.Builds) != 1 || len(p.Archives) != 1 || len(p.NFPMs) != 1 || len(p.SBOMs) != 1 || p.Checksum.NameTemplate == "" {
		t.Fatalf("%d builds, %d archives, %d packages, %d bills of materials, checksums %q", len(p.Builds), len(p.Archives), len(p.NFPMs), len(p.SBOMs), p.Checksum.NameTemplate)
	}
	b := p.Builds[0]
	if !slices.Equal(b.Goos, []string{"linux", "darwin", "windows"}) || !slices.Equal(b.Goarch, []string{"amd64", "arm64"}) || !slices.Contains(b.Env, "CGO_ENABLED=0") {
		t.Errorf("it builds for %v on %v with %v", b.Goos, b.Goarch, b.Env)
	}
	if !slices.Equal(p.NFPMs[0].Formats, []string{"deb", "rpm"}) {
		t.Errorf("it packages %v", p.NFPMs[0].Formats)
	}
	var files []string
	for _, f := range p.Archives[0].Files {
		files = append(files, f.Source)
	}
	for _, want := range []string{"LICENSE", "build/man/*", "build/completions/*"} {
		if !slices.Contains(files, want) {
			t.Errorf("the archives have %v, and no %s", files, want)
		}
	}
}

// This shows that the test above can fail.
func TestReleaseConfigurationWithAWrongFieldIsRefused(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(filepath.Join(root, ".goreleaser.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "wrong.yaml")
	if err := os.WriteFile(path, []byte(strings.Replace(string(text), "\nchecksum:", "\nchecksums:", 1)), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := config.Load(path); err == nil || !strings.Contains(err.Error(), "checksums not found") {
		t.Errorf("a section that goreleaser does not know: %v", err)
	}
}

// The workflow and the page run the version of goreleaser with which this module reads the configuration.
func TestReleaseWorkflowRunsTheGoreleaserThatReadTheConfiguration(t *testing.T) {
	t.Parallel()
	module, err := os.ReadFile("go.mod")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{".github/workflows/release.yaml", "docs/install.md"} {
		text, err := os.ReadFile(filepath.Join(root, path))
		if err != nil {
			t.Fatal(err)
		}
		_, after, _ := strings.Cut(string(text), "github.com/goreleaser/goreleaser/v2@")
		version := after[:max(0, strings.IndexAny(after, " \n`"))]
		if !strings.Contains(string(module), "github.com/goreleaser/goreleaser/v2 "+version+"\n") {
			t.Errorf("%s runs goreleaser %q, which is not the version in go.mod", path, version)
		}
	}
}
