package row

import (
	"github.com/cronce-io/cronce/client"
	"github.com/cronce-io/cronce/internal/codec"
	"github.com/cronce-io/cronce/internal/text/printable"
)

const (
	// MaxRows bounds the rows of a page, and so the memory that it takes.
	MaxRows = 5000

	// MaxReasons bounds how many reasons for values that were left out are in an answer. maxReason
	// bounds each of them, in bytes.
	MaxReasons = 5
	maxReason  = 1000
)

// Listed is a row of a listing.
type Listed interface{ Cursor() client.Cursor }

// Page is a part of a listing, in its order.
type Page[T Listed] struct {
	Rows       []T      `json:"rows"`
	Next       string   `json:"next,omitempty" doc:"there may be more: ask again with this as after. Left out: that was all"`
	Unreadable []string `json:"unreadable,omitempty" doc:"why something was left out: the first five reasons"`
}

// NewPage returns a page of at most limit rows. If rows are only the beginning of the listing, next
// is the cursor at which it continues; otherwise "".
func NewPage[T Listed](rows []T, limit int, next client.Cursor, unreadable []error) Page[T] {
	p := Page[T]{Rows: rows, Next: string(next), Unreadable: Reasons(unreadable)}
	p.Cut(limit)
	return p
}

// Cut shortens the page to its first n rows, at least one.
func (p *Page[T]) Cut(n int) {
	if n = max(n, 1); n < len(p.Rows) {
		p.Rows = p.Rows[:n]
		p.Next = string(p.Rows[n-1].Cursor())
	}
	if p.Rows == nil {
		p.Rows = []T{}
	}
}

// Reasons returns the first errors as text.
func Reasons(errs []error) []string {
	return codec.Map(errs[:min(len(errs), MaxReasons)], func(err error) string { return printable.Clip(err.Error(), maxReason) })
}
