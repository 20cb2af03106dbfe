//go:build builds

// Package site_test builds the documentation site and visits it.
package site_test

import (
	"bytes"
	"compress/gzip"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/net/html"

	"github.com/cronce-io/cronce/internal/lab/filetest"
)

// site is the folder of the site's sources.
const site = "../../../site"

// maxPlayground is the largest size of the playground when it is compressed.
const maxPlayground = 2 << 20

// built builds what is published of this checkout, as if it were released too, and returns its
// folder: main at the top, and the release below v0.1. It skips the test, by name, if the site's
// packages are not installed; with CRONCE_TEST_NO_SKIP=1 that fails the test.
func built(t *testing.T) string {
	t.Helper()
	if _, err := os.Stat(filepath.Join(site, "node_modules/vitepress")); err != nil {
		if os.Getenv("CRONCE_TEST_NO_SKIP") == "1" {
			t.Fatalf("run .ci/task site:install first: %v", err)
		}
		t.Skip("needs the site's packages: .ci/task site:install")
	}
	modules, err := filepath.Abs(filepath.Join(site, "node_modules"))
	if err != nil {
		t.Fatal(err)
	}
	dir, tree := t.TempDir(), t.TempDir()
	publish := exec.Command("/bin/bash", "-c", release, tree, modules, dir)
	publish.Dir = site
	publish.Env = append(os.Environ(), "GIT_CONFIG_COUNT=1", "GIT_CONFIG_KEY_0=safe.directory", "GIT_CONFIG_VALUE_0=*")
	if out, err := publish.CombinedOutput(); err != nil {
		t.Fatalf("publish.sh: %v\n%s", err, out)
	}
	return dir
}

// release copies this checkout with what is not committed yet, tags the copy, and publishes its
// site. v0.0.1 is a release from before the site, and v0.1.0 is not the newest of its version.
const release = `set -eu
git ls-files -z --cached --others --exclude-standard --full-name .. | (cd .. && xargs -0 sh -c 'for f; do [ ! -e "$f" ] || printf "%s\\0" "$f"; done' - | tar --null -T - -cf -) | tar -xf - -C "$0"
cd "$0"
git init -q && git config user.name test && git config user.email test@example.com
git commit -q --allow-empty -m empty && git tag v0.0.1
git add -A && git commit -q -m all && git tag v0.1.0 && git tag v0.1.1 && git tag v0.2.0-rc.1
ln -s "$1" site/node_modules
site/publish.sh "$2"
`

// Each page leads to the same site of the other versions.
func checkVersions(t *testing.T, dir string) {
	pages := readPages(t, dir)
	for path, want := range map[string][]string{
		"/guide.html":      {"/v0.1/", "/"},
		"/v0.1/guide.html": {"/v0.1/", "/"},
	} {
		p := pages[path]
		if p == nil {
			t.Errorf("there is no %s", path)
			continue
		}
		from, leads := &url.URL{Path: path}, map[string]bool{}
		for _, link := range p.links {
			if u, err := from.Parse(link); err == nil {
				leads[u.Path] = true
			}
		}
		for _, to := range want {
			if !leads[to] {
				t.Errorf("%s does not lead to %s", path, to)
			}
		}
	}
	for _, other := range []string{"v0.0", "v0.2"} {
		if exists(dir, other) {
			t.Errorf("%s is published", other)
		}
	}
	text, err := os.ReadFile(filepath.Join(dir, "v0.1/kubernetes.html"))
	if err != nil || !bytes.Contains(text, []byte("/blob/v0.1.1/deploy/kubernetes/cronce.yaml")) {
		t.Errorf("the pages of v0.1 do not link to the files of v0.1.1: %v", err)
	}
}

func TestSiteHasNoDeadLinkAndLoadsNothingFromElsewhere(t *testing.T) {
	t.Parallel()
	dir := built(t)
	t.Run("links", func(t *testing.T) { checkLinks(t, dir) })
	t.Run("versions", func(t *testing.T) { checkVersions(t, dir) })
	t.Run("playground", func(t *testing.T) { checkPlayground(t, dir) })
	t.Run("visits", func(t *testing.T) { checkVisits(t, dir) })
	t.Run("use", func(t *testing.T) { checkUse(t, dir) })
}

// page is what a page of the site links, and what can be linked in it.
type page struct {
	anchors map[string]bool
	links   []string
	assets  []string
}

func checkLinks(t *testing.T, dir string) {
	pages := readPages(t, dir)
	if len(pages) < 20 || pages["/index.html"] == nil || pages["/playground.html"] == nil {
		t.Fatalf("only %d pages", len(pages))
	}
	for path, p := range pages {
		from := &url.URL{Path: path}
		for _, asset := range p.assets {
			if u, err := from.Parse(asset); err != nil || u.Host != "" {
				t.Errorf("%s loads %s from elsewhere", path, asset)
			} else if !exists(dir, u.Path) {
				t.Errorf("%s loads %s, which is not there", path, asset)
			}
		}
		for _, link := range p.links {
			u, err := from.Parse(link)
			if err != nil {
				t.Errorf("%s: link to %s: %v", path, link, err)
				continue
			}
			if u.Host != "" || u.Scheme == "mailto" {
				continue
			}
			target := u.Path
			if strings.HasSuffix(target, "/") {
				target += "index.html"
			}
			switch there := pages[target]; {
			case there == nil && !exists(dir, target):
				t.Errorf("%s: link to %s: there is no such page", path, link)
			case there != nil && u.Fragment != "" && !there.anchors[u.Fragment]:
				t.Errorf("%s: link to %s: there is no such heading", path, link)
			}
		}
	}
}

func exists(dir, path string) bool {
	_, err := os.Stat(filepath.Join(dir, filepath.FromSlash(path)))
	return err == nil
}

func readPages(t *testing.T, dir string) map[string]*page {
	t.Helper()
	pages := map[string]*page{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || filepath.Ext(path) != ".html" {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		root, err := html.Parse(bytes.NewReader(text))
		if err != nil {
			return err
		}
		p := &page{anchors: map[string]bool{}}
		for n := range root.Descendants() {
			p.add(n)
		}
		name, err := filepath.Rel(dir, path)
		pages["/"+filepath.ToSlash(name)] = p
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return pages
}

func (p *page) add(n *html.Node) {
	for _, a := range n.Attr {
		switch {
		case a.Key == "id":
			p.anchors[a.Val] = true
		case a.Key == "href" && n.Data == "a":
			p.links = append(p.links, a.Val)
		case a.Key == "href" && n.Data == "link" || a.Key == "src":
			p.assets = append(p.assets, a.Val)
		}
	}
}

// needChromium returns the path of the browser. It skips the test, by name, if there is none.
func needChromium(t *testing.T) string {
	t.Helper()
	path, err := exec.LookPath("chromium")
	if err != nil {
		if os.Getenv("CRONCE_TEST_NO_SKIP") == "1" && !strings.Contains(os.Getenv("CRONCE_TEST_WITHOUT"), "chromium") {
			t.Fatal(err)
		}
		t.Skip("needs chromium")
	}
	return path
}

// checkPlayground opens the playground in a browser, which runs the program.
func checkPlayground(t *testing.T, dir string) {
	program := filetest.Read(t, filepath.Join(dir, "playground.wasm"))
	var small bytes.Buffer
	w := gzip.NewWriter(&small)
	if _, err := w.Write(program); err != nil || w.Close() != nil {
		t.Fatal(err)
	}
	if small.Len() > maxPlayground {
		t.Errorf("the playground has %d bytes compressed, more than %d", small.Len(), maxPlayground)
	}
	chromium := needChromium(t)
	server := httptest.NewServer(http.FileServer(http.Dir(dir)))
	defer server.Close()
	question := url.Values{"spec": {"30 2 * * *"}, "timezone": {"Europe/Berlin"}}
	browser := exec.Command(chromium, "--headless", "--no-sandbox", "--disable-gpu", "--user-data-dir="+t.TempDir(),
		"--virtual-time-budget=60000", "--dump-dom", server.URL+"/playground.html?"+question.Encode())
	var said bytes.Buffer
	browser.Stderr = &said
	out, err := browser.Output()
	if err != nil {
		t.Fatalf("%v\n%s", err, said.String())
	}
	text := textOf(t, bytes.NewReader(out))
	for _, want := range []string{"every day at 02:30", "clocks go forward from 02:00 (CET) to 03:00 (CEST)", "clocks go back from 03:00 (CEST) to 02:00 (CET)"} {
		if !strings.Contains(text, want) {
			t.Errorf("the playground does not say %q; it says\n%s", want, text)
		}
	}
}

func textOf(t *testing.T, r io.Reader) string {
	t.Helper()
	root, err := html.Parse(r)
	if err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	for n := range root.Descendants() {
		if n.Type == html.TextNode && n.Parent.Data != "script" && n.Parent.Data != "style" {
			text.WriteString(n.Data + " ")
		}
	}
	return strings.Join(strings.Fields(text.String()), " ")
}
