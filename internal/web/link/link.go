// Package link makes links and redirects that work below any path. A proxy, or http.StripPrefix,
// may have removed a prefix from the request's path, so all locations are relative.
package link

import (
	"net/http"
	"net/url"
	"strings"
)

// SessionCookie is the name of the cookie with which package auth recognizes a browser that has logged in. A
// page offers to log out if the browser has it: the name is here because both packages import this one.
const SessionCookie = "cronce_session"

// Root is the relative URL of the first page, as seen from the page of the request. It begins
// with "./" and ends with "/". The folders "." and ".." of the path count as a browser resolves them.
func Root(r *http.Request) string {
	path := r.URL.EscapedPath()
	up := 0
	for _, folder := range strings.Split(path[:max(strings.LastIndexByte(path, '/'), 0)], "/")[1:] {
		switch folder {
		case ".":
		case "..":
			up = max(up-1, 0)
		default:
			up++
		}
	}
	return "./" + strings.Repeat("../", up)
}

// Redirect sends the browser to path, a path of this server without a slash at the beginning. The
// location begins with "./", so a browser cannot read it as the name of another host.
func Redirect(w http.ResponseWriter, r *http.Request, path string) {
	redirect(w, r, path, http.StatusSeeOther)
}

// Repeat has the browser send the same form to path.
func Repeat(w http.ResponseWriter, r *http.Request, path string) {
	redirect(w, r, path, http.StatusTemporaryRedirect)
}

func redirect(w http.ResponseWriter, r *http.Request, path string, status int) {
	w.Header().Set("Location", Root(r)+path)
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
}

// Local returns next without slashes at its beginning. If next is not a path of this server, it
// returns "", the first page.
func Local(next string) string {
	u, err := url.Parse(next)
	if err != nil || u.Scheme != "" || u.Host != "" || strings.ContainsAny(next, "\\\r\n") {
		return ""
	}
	return strings.TrimLeft(next, "/")
}
