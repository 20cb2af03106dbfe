package control

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/cronce-io/cronce/job"
)

// Place is where a row stands in its listing: the rows are in the order of their
// places, as strings. A listing goes on after the place of the row that was seen
// last, though that row be gone. What it is made of is nobody else's business.
// Empty: before all rows.
type Place string

const placeTime = "2006-01-02T15:04:05.000000000Z"

func placeOf(t time.Time, name string) Place { return Place(t.UTC().Format(placeTime) + " " + name) }

// checkTime refuses what is no place among slots or nodes, with an error that wraps
// job.ErrInvalid.
func (p Place) checkTime() error {
	text, _, ok := strings.Cut(string(p), " ")
	if _, err := time.Parse(placeTime, text); p != "" && (err != nil || !ok || len(text) != len(placeTime)) {
		return p.wrong()
	}
	return nil
}

func (p Place) wrong() error {
	return fmt.Errorf("%w place %.80q: want one that a listing ended with", job.ErrInvalid, string(p))
}

// placed is a row of a listing.
type placed interface{ Place() Place }

// after are the rows that come after a place.
func after[T placed](rows []T, place Place) []T {
	if place == "" {
		return rows
	}
	return slices.DeleteFunc(rows, func(row T) bool { return row.Place() <= place })
}
