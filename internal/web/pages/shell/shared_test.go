package shell

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/fstest"

	"github.com/cronce-io/cronce/client"
	"github.com/cronce-io/cronce/internal/attach"
)

// Browsers that refresh a page after the same news share one answer, if they have the same user and
// the same choices. A browser that has received its news from another process shares no answer.
func TestRefreshedPageIsSharedUntilTheNextNews(t *testing.T) {
	t.Parallel()
	var reads atomic.Int64
	s := New(Config{
		Client:    client.Attach(attach.Parts{News: quiet{}}),
		User:      func(r *http.Request) string { return r.Header.Get("Test-User") },
		Subscribe: func(context.Context) (<-chan client.Event, func(), error) { return nil, nil, errors.New("none") },
		Templates: fstest.MapFS{"html/test.html": {Data: []byte(`{{define "title"}}T{{end}}{{define "content"}}read {{.Data}} for {{.User}}.{{end}}`)}, "html/parts/none.html": {}},
	}, []Page{{Path: "/x", File: "test.html", Show: func(r *Request) (any, error) {
		if err := r.Context().Err(); err != nil {
			return nil, err
		}
		if r.Header.Get(liveHeader) == "other" && r.News.IsZero() {
			t.Error("a page that another process told the news may be shown what is older")
		}
		r.Form.Get("q")
		return reads.Add(1), nil
	}}})
	defer s.Close()
	ask := func(path string, header ...string) string {
		ctx, cancel := context.WithCancel(t.Context())
		r := httptest.NewRequestWithContext(ctx, http.MethodGet, path, nil)
		for i := 0; i < len(header); i += 2 {
			r.Header.Set(header[i], header[i+1])
		}
		if r.Header.Get(liveHeader) == s.live.id {
			cancel() // it leaves: the others get its answer
		}
		defer cancel()
		w := httptest.NewRecorder()
		s.ServeHTTP(w, r)
		data, err := io.ReadAll(w.Body)
		if err != nil || w.Code != http.StatusOK {
			t.Fatalf("%s %q: %d, %v: %s", path, header, w.Code, err, data)
		}
		return string(data)
	}
	mine := []string{liveHeader, s.live.id}
	first := ask("/x", mine...)
	n := reads.Load()
	want := func(what, body string, read int64, user string) {
		t.Helper()
		if text := fmt.Sprintf("read %d for %s.", read, user); !strings.Contains(body, text) {
			t.Errorf("%s: want %q in %s", what, text, body)
		}
	}
	want("the first", first, n, "")
	want("the same page", ask("/x", mine...), n, "")
	s.live.send(message("touched", touched{}))
	want("after news", ask("/x", mine...), n+1, "")
	want("another user", ask("/x", append(mine, "Test-User", "alice")...), n+2, "alice")
	want("another query", ask("/x?q=1", mine...), n+3, "")
	want("another zone", ask("/x", append(mine, "Cookie", zoneCookie+"=Europe%2FBerlin")...), n+4, "")
	want("another theme", ask("/x", append(mine, "Cookie", themeCookie+"=dark")...), n+5, "")
	want("a page that is opened", ask("/x"), n+6, "")
	want("news of another process", ask("/x", liveHeader, "other"), n+7, "")
	s.may.known.Edit = !s.may.known.Edit
	want("other rights", ask("/x", mine...), n+8, "")
}
