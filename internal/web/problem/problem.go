// Package problem writes errors of HTTP requests as problem documents (RFC 9457). Each has a
// stable type, which docs/api.md describes, and a detail for people.
package problem

import (
	"encoding/json"
	"errors"
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/cronce-io/cronce/client"
	"github.com/cronce-io/cronce/internal/api/fault"
	"github.com/cronce-io/cronce/internal/text/printable"
)

// MediaType is the media type of problem documents.
const MediaType = "application/problem+json"

// typePrefix is the beginning of each type: the address of the page that describes it. Clients
// compare types as text, so the prefix stays the same even if the page moves.
const typePrefix = "https://github.com/cronce-io/cronce/blob/main/docs/api.md#"

// maxDetail bounds a detail, in bytes. Errors may quote long text from requests or from the
// broker.
const maxDetail = 2000

// Document is a problem document. It leaves out optional members that are empty.
type Document struct {
	Type   string `json:"type" doc:"names the kind of problem; stable"`
	Title  string `json:"title" doc:"the kind of problem in words"`
	Status int    `json:"status" doc:"the HTTP status"`
	Detail string `json:"detail,omitempty" doc:"what is wrong with this request, and what would be right"`
	Field  string `json:"field,omitempty" doc:"the parameter, header or member that is wrong"`
	By     string `json:"by,omitempty" doc:"the operator that changed the job or slot meanwhile"`

	// Revision is the current revision of the job, if another writer was faster.
	Revision uint64 `json:"revision,omitempty" doc:"the current revision of the job"`

	// Retry becomes the header Retry-After, in whole seconds.
	Retry time.Duration `json:"-"`
}

// Error returns the detail, so that a Document can be returned as an error.
func (d *Document) Error() string { return d.Detail }

// New returns a document of a kind.
func New(c fault.Code, detail string) *Document {
	return &Document{Type: typePrefix + c.Name, Title: c.Title, Status: c.Status, Detail: printable.Clip(detail, maxDetail), Retry: c.Retry}
}

// Of returns the document of an error: the error itself if it is a Document, else one of the error's
// code. question reports that the request changes nothing. If such a request times out, the problem
// is "unavailable", and not "unknown" as for an order.
func Of(err error, question bool) *Document {
	if ready, ok := errors.AsType[*Document](err); ok {
		return ready
	}
	code := fault.Of(err)
	if code == fault.Unknown && question {
		return New(fault.Unavailable, "the NATS server has not answered in time")
	}
	d := New(code, strings.ReplaceAll(err.Error(), "\n", "; "))
	if lost, ok := errors.AsType[*client.ConflictError](err); ok {
		d.By, d.Revision = lost.By, lost.Revision
	}
	if lost, ok := errors.AsType[*client.SlotConflictError](err); ok {
		d.By = lost.By
	}
	return d
}

// Write sends the document as JSON.
func (d *Document) Write(w http.ResponseWriter) {
	data, err := json.Marshal(d)
	if err != nil { // cannot happen: the document holds only strings and numbers
		http.Error(w, d.Title, d.Status)
		return
	}
	d.send(w, MediaType, append(data, '\n'))
}

// send sends body, which shows the document.
func (d *Document) send(w http.ResponseWriter, media string, body []byte) {
	h := w.Header()
	h.Set("Content-Type", media)
	h.Set("Cache-Control", "no-store")
	if d.Retry > 0 {
		h.Set("Retry-After", d.retryAfter())
	}
	w.WriteHeader(d.Status)
	_, _ = w.Write(body) // fails only if the client is gone
}

func (d *Document) retryAfter() string { return strconv.Itoa(int(math.Ceil(d.Retry.Seconds()))) }

// Write sends a document of a kind.
func Write(w http.ResponseWriter, c fault.Code, detail string) { New(c, detail).Write(w) }
