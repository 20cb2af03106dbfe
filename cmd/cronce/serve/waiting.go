package serve

import (
	"html/template"
	"net/http"
	"strconv"
	"strings"

	"github.com/cronce-io/cronce/internal/api/fault"
	"github.com/cronce-io/cronce/internal/web/link"
	"github.com/cronce-io/cronce/internal/web/problem"
)

// waitingPage is the page in the browser until the dashboard is ready. The header Refresh makes the
// browser load the address again, until the page that the person asked for is there.
var waitingPage = template.Must(template.New("waiting").Parse(`<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Not ready yet - Cronce</title>
<link rel="stylesheet" href="{{.Root}}waiting.css">
</head>
<body>
<main>
<h1>Cronce is not ready yet</h1>
<p class="why">{{.Why}}</p>
<p>This page reloads by itself. <code>cronce doctor</code> says what is wrong with a server or a fleet.</p>
</main>
</body>
</html>
`))

const waitingCSS = `:root { color-scheme: light dark; }
body { font: 1rem/1.5 system-ui, sans-serif; margin: 0; background: Canvas; color: CanvasText; }
main { max-width: 40rem; margin: 15vh auto 0; padding: 0 1rem; overflow-wrap: anywhere; }
.why { padding: .5rem .75rem; border-left: 4px solid #f59e0b; }
`

// answerNotReady answers requests until the namespace is open: with a page for a person, and a
// problem document for a program.
func (s *httpServer) answerNotReady(w http.ResponseWriter, r *http.Request) {
	why := "this process is starting"
	if ready, _ := s.health.ask(); firstFailure(ready) != nil {
		why = firstFailure(ready).Err.Error()
	}
	h := w.Header()
	switch {
	case r.Method == http.MethodGet && r.URL.Path == "/waiting.css":
		h.Set("Content-Type", "text/css; charset=utf-8")
		_, _ = w.Write([]byte(waitingCSS)) // it fails only if the client has disconnected
	case r.Method == http.MethodGet && strings.Contains(r.Header.Get("Accept"), "text/html"):
		seconds := strconv.Itoa(int(fault.Unavailable.Retry.Seconds()))
		h.Set("Content-Type", "text/html; charset=utf-8")
		h.Set("Cache-Control", "no-store")
		h.Set("Retry-After", seconds)
		h.Set("Refresh", seconds)
		w.WriteHeader(http.StatusServiceUnavailable)
		_ = waitingPage.Execute(w, struct{ Root, Why string }{link.Root(r), why})
	default:
		problem.Write(w, fault.Unavailable, why)
	}
}
