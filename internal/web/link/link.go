// Package link makes links and redirects that hold below any path. A proxy, or http.StripPrefix,
// may have removed a prefix from the request's path, so all locations are relative to it.
package link

import (
	"net/http"
	"strings"
)

// Root is the relative URL of the first page, as seen from the page of the request. It begins
// with "./" and ends with "/".
func Root(r *http.Request) string {
	up := strings.Count(r.URL.EscapedPath(), "/") - 1
	return "./" + strings.Repeat("../", max(up, 0))
}

// Redirect sends the browser to a path of this server. Behind "./" no part of the path can be
// read as the name of another host.
func Redirect(w http.ResponseWriter, r *http.Request, path string) {
	w.Header().Set("Location", Root(r)+strings.TrimLeft(path, "/"))
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(http.StatusSeeOther)
}
