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
)

// maxPlayground is the largest size of the playground when it is compressed.
const maxPlayground = 2 << 20

// built builds the site and returns its folder. It skips the test, by name, if the site's
// packages are not installed; with CRONCE_TEST_NO_SKIP=1 that fails the test.
func built(t *testing.T) string {
	t.Helper()
	if _, err := os.Stat("node_modules/vitepress"); err != nil {
		if os.Getenv("CRONCE_TEST_NO_SKIP") == "1" {
			t.Fatalf("run go tool task site:install first: %v", err)
		}
		t.Skip("needs the site's packages: go tool task site:install")
	}
	dir := t.TempDir()
	build := exec.Command("./build.sh")
	build.Env = append(os.Environ(), "CRONCE_SITE="+dir)
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build.sh: %v\n%s", err, out)
	}
	return dir
}

func TestSiteHasNoDeadLinkAndLoadsNothingFromElsewhere(t *testing.T) {
	t.Parallel()
	dir := built(t)
	t.Run("links", func(t *testing.T) { checkLinks(t, dir) })
	t.Run("playground", func(t *testing.T) { checkPlayground(t, dir) })
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

// checkPlayground opens the playground in a browser, which runs the program.
func checkPlayground(t *testing.T, dir string) {
	program, err := os.ReadFile(filepath.Join(dir, "playground.wasm"))
	if err != nil {
		t.Fatal(err)
	}
	var small bytes.Buffer
	w := gzip.NewWriter(&small)
	if _, err := w.Write(program); err != nil || w.Close() != nil {
		t.Fatal(err)
	}
	if small.Len() > maxPlayground {
		t.Errorf("the playground has %d bytes compressed, more than %d", small.Len(), maxPlayground)
	}
	chromium, err := exec.LookPath("chromium")
	if err != nil {
		if os.Getenv("CRONCE_TEST_NO_SKIP") == "1" && !strings.Contains(os.Getenv("CRONCE_TEST_WITHOUT"), "chromium") {
			t.Fatal(err)
		}
		t.Skip("needs chromium")
	}
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
