package api

import (
	"cmp"

	"github.com/cronce-io/cronce/client"
	"github.com/cronce-io/cronce/internal/api/row"
)

// paging has the parameters that select a page of a listing.
type paging struct {
	Limit int    `query:"limit" min:"1" max:"5000" default:"5000" doc:"how many rows at most; a page may have fewer although others follow"`
	After string `query:"after" doc:"the member next of the previous page: the listing continues there"`
}

func (p paging) limit() int { return cmp.Or(p.Limit, row.MaxRows) }

func (p paging) cursor() client.Cursor { return client.Cursor(p.After) }

// newPage returns a page of rows, and links to the next one.
func newPage[T row.Listed](c *call, p paging, rows []T, next client.Cursor, unreadable []error) row.Page[T] {
	page := row.NewPage(rows, p.limit(), next, unreadable)
	if page.Next != "" {
		c.linkNext(page.Next)
	}
	return page
}

// linkNext sets the header Link to the next page: the query of the request, with next as its cursor.
func (c *call) linkNext(next string) {
	c.query.Set("after", next)
	c.header.Set("Link", "<?"+c.query.Encode()+`>; rel="next"`)
}
