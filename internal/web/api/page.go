package api

import (
	"net/url"
	"strconv"

	"github.com/cronce-io/cronce/client"
)

// maxRows bounds a page.
const maxRows = 5000

// paging has the parameters that select a page of a listing.
type paging struct {
	Limit int    `query:"limit" min:"1" max:"5000" default:"5000" doc:"at most so many rows; there may be fewer, and a next all the same"`
	After string `query:"after" doc:"the next of the page before: the listing goes on there"`
}

func (p paging) limit() int {
	if p.Limit == 0 {
		return maxRows
	}
	return p.Limit
}

func (p paging) cursor() client.Cursor { return client.Cursor(p.After) }

// Page is a part of a listing, in its order.
type Page[T any] struct {
	Rows       []T      `json:"rows"`
	Next       string   `json:"next,omitempty" doc:"there may be more: ask again with this as after. Left out: that was all"`
	Unreadable []string `json:"unreadable,omitempty" doc:"why something was left out: the first five reasons"`
}

// newPage cuts rows at the limit. If rows are only the beginning of the listing, next is the
// cursor at which it continues; otherwise "".
func newPage[T interface{ Cursor() client.Cursor }](c *call, p paging, query url.Values, rows []T, next client.Cursor, unreadable []error) Page[T] {
	page := Page[T]{Rows: rows, Next: string(next)}
	if n := p.limit(); n < len(rows) {
		page.Rows, page.Next = rows[:n], string(rows[n-1].Cursor())
	}
	if page.Rows == nil {
		page.Rows = []T{}
	}
	page.Unreadable = reasons(unreadable)
	if page.Next != "" {
		c.linkNext(p, query, page.Next)
	}
	return page
}

// linkNext sets the header Link to the next page: the same query, after the cursor next.
func (c *call) linkNext(p paging, query url.Values, next string) {
	query.Set("after", next)
	if p.Limit > 0 {
		query.Set("limit", strconv.Itoa(p.Limit))
	}
	c.header.Set("Link", "<?"+query.Encode()+`>; rel="next"`)
}
