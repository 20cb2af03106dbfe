// Package secure holds what every answer of the HTTP API and the pages has in common: the headers
// that tell a browser what the pages may do, the refusal of orders that other sites send, and
// the bound on bodies. Package web uses it too, inside the server of another program.
package secure

import (
	"net/http"
	"strings"

	"github.com/cronce-io/cronce/internal/api/fault"
	"github.com/cronce-io/cronce/internal/web/link"
	"github.com/cronce-io/cronce/internal/web/problem"
)

// MaxBody bounds the body of a request, in bytes.
const MaxBody = 1 << 20

// Policy is the content policy: pages load resources only from this server, run no inline script,
// send forms only to this server, and cannot be framed.
const Policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
	"form-action 'self'; base-uri 'none'; frame-ancestors 'none'"

// Wrap returns a handler that sets the headers and passes requests on to next. It refuses bodies of
// more than MaxBody, and requests of a page of another site unless they only read (GET, HEAD and
// OPTIONS). It makes the redirects of next work below any path.
func Wrap(next http.Handler) http.Handler {
	protection := http.NewCrossOriginProtection()
	protection.SetDenyHandler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		problem.Refuse(w, r, fault.CrossSite, "a page of another site sent the request: send orders from this site, or from a program other than a browser")
	}))
	checked := protection.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ContentLength > MaxBody {
			problem.Refuse(w, r, fault.TooLarge, "the body has more than 1 MiB")
			return
		}
		r.Body = http.MaxBytesReader(w, r.Body, MaxBody)
		next.ServeHTTP(redirecting{w, r}, r)
	}))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", Policy)
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("X-Frame-Options", "DENY")
		h.Set("Referrer-Policy", "same-origin")
		h.Set("Cross-Origin-Opener-Policy", "same-origin")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		h.Set("Permissions-Policy", "camera=(), geolocation=(), microphone=()")
		checked.ServeHTTP(w, r)
	})
}

// redirecting makes locations on this server relative. http.ServeMux redirects to absolute paths when
// it cleans a path or adds a slash. Behind a proxy that removes a prefix, they would lead elsewhere.
type redirecting struct {
	http.ResponseWriter
	request *http.Request
}

// Unwrap lets http.ResponseController reach the connection.
func (w redirecting) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (w redirecting) WriteHeader(code int) {
	if to := w.Header().Get("Location"); strings.HasPrefix(to, "/") {
		w.Header().Set("Location", link.Root(w.request)+strings.TrimLeft(to, "/"))
	}
	w.ResponseWriter.WriteHeader(code)
}
