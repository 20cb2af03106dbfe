package api

import (
	"cmp"
	"net/url"
	"strconv"

	"github.com/cronce-io/cronce/client"
	"github.com/cronce-io/cronce/internal/api/row"
)

// paging has the parameters that select a page of a listing.
type paging struct {
	Limit int    `query:"limit" min:"1" max:"5000" default:"5000" doc:"at most so many rows; a page may have fewer although others follow"`
	After string `query:"after" doc:"the next of the page before: the listing goes on there"`
}

func (p paging) limit() int { return cmp.Or(p.Limit, row.MaxRows) }

func (p paging) cursor() client.Cursor { return client.Cursor(p.After) }

// newPage returns a page of rows, and links to the next one with the parameters of query.
func newPage[T row.Listed](c *call, p paging, query url.Values, rows []T, next client.Cursor, unreadable []error) row.Page[T] {
	page := row.NewPage(rows, p.limit(), next, unreadable)
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
