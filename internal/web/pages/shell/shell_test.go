package shell_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/cronce-io/cronce/client"
	"github.com/cronce-io/cronce/internal/web/link"
	"github.com/cronce-io/cronce/internal/web/pages/shell"
	"github.com/cronce-io/cronce/internal/web/secure"
	"github.com/cronce-io/cronce/job"
)

const testPage = `{{define "title"}}A <b>title{{end}}
{{define "content"}}<p>{{$.Text .Data}}</p><a href="{{$.Link "slots" "report:2026-11-21T07:00:00Z" "a/b"}}">link</a>
<form method="post">{{template "field" (.Form.Field "count" "How many" "from 1 to 5")}}</form>{{end}}`

// site serves one page with a form, below a prefix.
func site(t *testing.T) string {
	t.Helper()
	s := shell.New(shell.Config{
		Client:    &client.Client{},
		User:      func(r *http.Request) string { return r.Header.Get("Test-User") },
		Subscribe: func(context.Context) (<-chan client.Event, func(), error) { return nil, nil, errors.New("none") },
		Templates: fstest.MapFS{"html/test.html": {Data: []byte(testPage)}, "html/parts/none.html": {}},
	}, []shell.Page{{
		Path: "/deep/{name}", Nav: "jobs", File: "test.html",
		Show: func(r *shell.Request) (any, error) {
			r.Form.One("count", "1", "2", "3", "4", "5")
			return r.PathValue("name"), nil
		},
		Do: func(r *shell.Request) (string, error) {
			r.Form.One("count", "1", "2", "3", "4", "5")
			return shell.Path("deep", "a/b"), nil
		},
	}})
	t.Cleanup(s.Close)
	mux := http.NewServeMux()
	mux.Handle("/ops/", http.StripPrefix("/ops", secure.Wrap(s)))
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	return server.URL + "/ops"
}

func send(t *testing.T, r *http.Request) (*http.Response, string) {
	t.Helper()
	c := http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	w, err := c.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Body.Close()
	body, err := io.ReadAll(w.Body)
	if err != nil {
		t.Fatal(err)
	}
	return w, string(body)
}

func get(t *testing.T, to string) (*http.Response, string) {
	t.Helper()
	r, err := http.NewRequest(http.MethodGet, to, nil)
	if err != nil {
		t.Fatal(err)
	}
	return send(t, r)
}

func post(t *testing.T, to string, form url.Values) (*http.Response, string) {
	t.Helper()
	r, err := http.NewRequest(http.MethodPost, to, strings.NewReader(form.Encode()))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	return send(t, r)
}

func TestForeignTextIsNoMarkup(t *testing.T) {
	t.Parallel()
	w, body := get(t, site(t)+"/deep/"+url.PathEscape("<script>alert(1)</script>\u202egnp\x1b[31m"))
	if w.StatusCode != 200 || strings.Contains(body, "<script>alert") || strings.ContainsAny(body, "\u202e\x1b") {
		t.Errorf("%d: %s", w.StatusCode, body)
	}
	if !strings.Contains(body, "&lt;script&gt;alert(1)") || !strings.Contains(body, `\u202egnp\x1b[31m`) {
		t.Errorf("the text is not shown as it is: %s", body)
	}
}

func TestLinksAndAssetsHoldBelowAnyPath(t *testing.T) {
	t.Parallel()
	root := site(t)
	for _, path := range []string{"/deep/x", "/deep/" + url.PathEscape("x/y"), "/nothing", "/a/b/c/d"} {
		_, body := get(t, root+path)
		page, err := url.Parse(root + path)
		if err != nil {
			t.Fatal(err)
		}
		found := regexp.MustCompile(`(?:src|href)="([^"#]+)"`).FindAllStringSubmatch(body, -1)
		if len(found) < 5 {
			t.Fatalf("%s has only the links %q", path, found)
		}
		for _, m := range found {
			to, err := page.Parse(m[1])
			if err != nil || !strings.HasPrefix(to.String(), root+"/") {
				t.Errorf("%s links to %s: %v", path, to, err)
				continue
			}
			if !strings.Contains(to.Path, "/assets/") {
				continue
			}
			w, _ := get(t, to.String())
			if w.StatusCode != 200 || !strings.Contains(w.Header.Get("Cache-Control"), "immutable") {
				t.Errorf("asset %s: %d, %v", to, w.StatusCode, w.Header)
			}
		}
	}
	if _, body := get(t, root+"/deep/x"); !strings.Contains(body, "/slots/report:2026-11-21T07:00:00Z/a%2Fb") {
		t.Errorf("a part of a link is no segment: %s", body)
	}
}

func TestOrderRedirectsBelowThePrefix(t *testing.T) {
	t.Parallel()
	w, body := post(t, site(t)+"/deep/x", url.Values{"count": {"3"}})
	if to, err := w.Location(); w.StatusCode != http.StatusSeeOther || err != nil || to.EscapedPath() != "/ops/deep/a%2Fb" {
		t.Errorf("%d %s %v: %s", w.StatusCode, w.Header.Get("Location"), err, body)
	}
}

// With the name of the client, the records and events would show the wrong operator.
func TestOrderOfAUserWithAnInvalidNameIsRefused(t *testing.T) {
	t.Parallel()
	for user, want := range map[string]int{"erin": http.StatusSeeOther, strings.Repeat("e", job.MaxToken+1): http.StatusBadRequest} {
		r, err := http.NewRequest(http.MethodPost, site(t)+"/deep/x", strings.NewReader("count=3"))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		r.Header.Set("Test-User", user)
		if w, body := send(t, r); w.StatusCode != want {
			t.Errorf("%.10s: %d, want %d: %s", user, w.StatusCode, want, body)
		}
	}
}

func TestFormKeepsWhatWasTypedAndSaysWhatIsWrong(t *testing.T) {
	t.Parallel()
	root := site(t)
	w, body := post(t, root+"/deep/x", url.Values{"count": {`9"><b>`}})
	if w.StatusCode != http.StatusUnprocessableEntity || !strings.Contains(body, `value="9&#34;&gt;&lt;b&gt;"`) ||
		!strings.Contains(body, "want one of 1, 2, 3, 4, 5") || !strings.Contains(body, `aria-invalid="true"`) {
		t.Errorf("%d: %s", w.StatusCode, body)
	}
	w, body = get(t, root+"/deep/x?count=many")
	if w.StatusCode != http.StatusBadRequest || !strings.Contains(body, "want one of") {
		t.Errorf("%d: %s", w.StatusCode, body)
	}
	for _, query := range []string{"cuont=3", "count=3&x=%3Cscript%3E"} {
		if w, body = get(t, root+"/deep/x?"+query); w.StatusCode != http.StatusBadRequest || !strings.Contains(body, "this page has no parameter") || strings.Contains(body, "<script>\"") {
			t.Errorf("%s: %d: %s", query, w.StatusCode, body)
		}
	}
	if w, body = get(t, root+"/deep/x?count=%ff"); w.StatusCode != http.StatusBadRequest || !strings.Contains(body, "UTF-8") {
		t.Errorf("%d: %s", w.StatusCode, body)
	}
}

func TestPagesOfferALogoutToABrowserThatHasLoggedIn(t *testing.T) {
	t.Parallel()
	root := site(t)
	for _, session := range []bool{true, false} {
		r, err := http.NewRequest(http.MethodGet, root+"/deep/x", nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Test-User", "alice")
		if session {
			r.AddCookie(&http.Cookie{Name: link.SessionCookie, Value: "x"})
		}
		if _, body := send(t, r); strings.Contains(body, `action="./../logout"`) != session {
			t.Errorf("with a session: %v: %s", session, body)
		}
	}
}

func TestPreferencesComeBackToThePage(t *testing.T) {
	t.Parallel()
	root := site(t)
	w, _ := post(t, root+"/preferences", url.Values{"choose-zone": {"Europe/Berlin"}, "choose-theme": {"dark"}, "next": {"deep/x?count=2"}})
	to, err := w.Location()
	if err != nil || to.String() != root+"/deep/x?count=2" || len(w.Cookies()) != 2 {
		t.Fatalf("%v %v %v", to, err, w.Cookies())
	}
	r, err := http.NewRequest(http.MethodGet, to.String(), nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range w.Cookies() {
		if c.Path != "" {
			t.Errorf("the cookie %s is for the path %q, and not for the folder of the pages", c.Name, c.Path)
		}
		r.AddCookie(c)
	}
	if _, body := send(t, r); !strings.Contains(body, `data-theme="dark"`) || !strings.Contains(body, `<option value="Europe/Berlin" selected>`) {
		t.Errorf("the choice is not kept: %s", body)
	}
	for next, want := range map[string]string{"/deep/x?zone=Asia%2FTokyo&count=2": "/deep/x?count=2&zone=UTC", "/jobs:bulk?order=pause": "/jobs:bulk?order=pause"} {
		if w, _ := post(t, root+"/preferences", url.Values{"choose-zone": {"UTC"}, "next": {next}}); w.Header.Get("Location") != "."+want {
			t.Errorf("the choice of a zone on %s leads to %s", next, w.Header.Get("Location"))
		}
	}
	if _, body := get(t, root+"/deep/a:b?count=2"); !strings.Contains(body, `name="next" value="/deep/a:b?count=2"`) {
		t.Errorf("the form of the choices does not lead back: %s", body)
	}
	for _, wrong := range []url.Values{{"choose-zone": {"Mars/Olympus"}}, {"choose-theme": {"<b>"}}, {"choose-zone": {"../../etc/passwd"}}} {
		if w, body := post(t, root+"/preferences", wrong); w.StatusCode != http.StatusBadRequest || len(w.Cookies()) > 0 {
			t.Errorf("%v: %d %s", wrong, w.StatusCode, body)
		}
	}
	for _, evil := range []string{"//evil.example", "https://evil.example/", `\\evil.example`, "/\\evil.example"} {
		w, _ := post(t, root+"/preferences", url.Values{"choose-theme": {"dark"}, "next": {evil}})
		if to, err := w.Location(); err != nil || !strings.HasPrefix(to.String(), root+"/") {
			t.Errorf("%q leads to %v, %v", evil, to, err)
		}
	}
}

func TestOtherMethodsAndPathsGetAPage(t *testing.T) {
	t.Parallel()
	root := site(t)
	if w, body := post(t, root+"/nothing", nil); w.StatusCode != http.StatusNotFound || !strings.Contains(body, "no page has the path") {
		t.Errorf("%d: %s", w.StatusCode, body)
	}
	r, err := http.NewRequest(http.MethodDelete, root+"/deep/x", nil)
	if err != nil {
		t.Fatal(err)
	}
	if w, body := send(t, r); w.StatusCode != http.StatusMethodNotAllowed {
		t.Errorf("%d: %s", w.StatusCode, body)
	}
	if w, _ := get(t, root+"/deep/x/"); w.StatusCode != http.StatusSeeOther {
		t.Errorf("a slash at the end: %d", w.StatusCode)
	}
}
