package problem

import (
	"bytes"
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"html/template"
	"net/http"
	"strings"

	"github.com/cronce-io/cronce/internal/api/fault"
)

//go:embed page.css
var style string

// page contains its style, because the packages that send it, such as secure, do not know the path
// of the assets.
var page = template.Must(template.New("").Parse(`<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{{.Title}} · Cronce</title>
<style>{{.Style}}</style>
</head>
<body>
<main>
<p class="status">{{.Status}}</p>
<h1>{{.Title}}</h1>
<p>{{.Detail}}</p>
{{if .Reloads}}<p>This page reloads by itself. <code>cronce doctor</code> says what is wrong with a server or a fleet.</p>
{{else}}<p>Nothing was changed. Use the browser's button to go back: it keeps what you typed.</p>
{{end}}</main>
</body>
</html>
`))

// policy allows the style of the page, and nothing else.
func policy() string {
	sum := sha256.Sum256([]byte(style))
	return "default-src 'none'; style-src 'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
}

// Refuse answers a request that was not carried out: with a page if a browser asks for HTML, else
// with a problem document. If it was a GET that may succeed later, the browser loads the page again.
func Refuse(w http.ResponseWriter, r *http.Request, c fault.Code, detail string) {
	d := New(c, detail)
	if !strings.Contains(r.Header.Get("Accept"), "text/html") {
		d.Write(w)
		return
	}
	reloads := d.Retry > 0 && r.Method == http.MethodGet
	var b bytes.Buffer
	if err := page.Execute(&b, struct {
		*Document

		Style   template.CSS
		Reloads bool
	}{d, template.CSS(style), reloads}); err != nil { //nolint:gosec // the style is a file of this package
		d.Write(w)
		return
	}
	if reloads {
		w.Header().Set("Refresh", d.retryAfter())
	}
	w.Header().Set("Content-Security-Policy", policy())
	d.send(w, "text/html; charset=utf-8", b.Bytes())
}
