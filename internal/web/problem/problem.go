// Package problem writes errors of HTTP requests as problem documents (RFC 9457). Each has a
// stable type, which docs/api.md describes, and a detail for people.
package problem

import (
	"encoding/json"
	"net/http"
	"strconv"
	"time"

	"github.com/cronce-io/cronce/internal/api/fault"
	"github.com/cronce-io/cronce/internal/text/printable"
)

// MediaType is the media type of problem documents.
const MediaType = "application/problem+json"

// page describes each type. A type is a name: it stays the same if the page moves.
const page = "https://github.com/cronce-io/cronce/blob/main/docs/api.md#"

// mostDetail bounds a detail, in bytes. Errors may quote long text from requests or from the
// broker.
const mostDetail = 2000

// Document is a problem document. The zero Retry, Field and By are left out.
type Document struct {
	Type   string `json:"type" doc:"names the kind of problem; stable"`
	Title  string `json:"title" doc:"the kind of problem in words"`
	Status int    `json:"status" doc:"the HTTP status"`
	Detail string `json:"detail,omitempty" doc:"what is wrong with this request, and what would be right"`
	Field  string `json:"field,omitempty" doc:"the parameter, header or member that is wrong"`
	By     string `json:"by,omitempty" doc:"the operator that changed the job or slot meanwhile"`

	// Revision is the revision that holds now, if another writer was faster.
	Revision uint64 `json:"revision,omitempty" doc:"the revision that holds now"`

	// Retry becomes the header Retry-After, in whole seconds.
	Retry time.Duration `json:"-"`
}

// Error returns the detail, so that a Document can be returned as an error.
func (d *Document) Error() string { return d.Detail }

// New returns a document of a kind.
func New(c fault.Code, detail string) *Document {
	return &Document{Type: page + c.Name, Title: c.Title, Status: c.Status, Detail: printable.Clip(detail, mostDetail), Retry: c.Retry}
}

// Write sends the document.
func (d *Document) Write(w http.ResponseWriter) {
	data, err := json.Marshal(d)
	if err != nil { // it holds only strings and numbers
		http.Error(w, d.Title, d.Status)
		return
	}
	h := w.Header()
	h.Set("Content-Type", MediaType)
	h.Set("Cache-Control", "no-store")
	if d.Retry > 0 {
		h.Set("Retry-After", strconv.Itoa(int((d.Retry+time.Second-1)/time.Second)))
	}
	w.WriteHeader(d.Status)
	_, _ = w.Write(append(data, '\n')) // the client is gone
}

// Write sends a document of a kind.
func Write(w http.ResponseWriter, c fault.Code, detail string) { New(c, detail).Write(w) }
