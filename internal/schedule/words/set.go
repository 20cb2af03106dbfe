package words

import (
	"fmt"
	"math/bits"
	"slices"
	"strconv"
	"strings"
)

// set is what a field matches, in ascending order.
type set []int

func numbers(mask uint64) (s set) {
	for ; mask != 0; mask &= mask - 1 {
		s = append(s, bits.TrailingZeros64(mask))
	}
	return s
}

func (s set) first() int { return s[0] }
func (s set) last() int  { return s[len(s)-1] }
func (s set) one() bool  { return len(s) == 1 }

// step returns the distance between neighbours, or 0 if it is not the same for all.
func (s set) step() int {
	if len(s) < 2 {
		return 0
	}
	n := s[1] - s[0]
	for i := range len(s) - 1 {
		if s[i+1]-s[i] != n {
			return 0
		}
	}
	return n
}

// cycle returns the step of a set whose numbers are evenly spread over 0 to whole-1, also from the
// last one around to the first: 15 for 0, 15, 30, 45 of 60. Otherwise it returns 0.
func (s set) cycle(whole int) int {
	n := s.step()
	if n == 0 || whole%n != 0 || len(s) != whole/n {
		return 0
	}
	return n
}

// all reports whether the set has all numbers of a field, of which there are whole.
func (s set) all(whole int) bool { return len(s) == whole }

// list names the members: "1, 2 and 5", or with ranges of three and more "1 to 3 and 5".
func (s set) list(name func(int) string) string {
	var parts []string
	for i := 0; i < len(s); {
		end := i
		for end+1 < len(s) && s[end+1] == s[end]+1 {
			end++
		}
		switch {
		case end-i >= 2:
			parts = append(parts, name(s[i])+" to "+name(s[end]))
		default:
			for _, n := range s[i : end+1] {
				parts = append(parts, name(n))
			}
		}
		i = end + 1
	}
	return and(parts)
}

// and joins texts: "a, b and c".
func and(parts []string) string {
	if n := len(parts); n > 1 {
		return strings.Join(parts[:n-1], ", ") + " and " + parts[n-1]
	}
	return strings.Join(parts, "")
}

func digits(n int) string { return strconv.Itoa(n) }

// ordinal returns "1st", "2nd" and so on.
func ordinal(n int) string {
	suffix := "th"
	if n < 11 || n > 13 {
		if i := n % 10; i >= 1 && i <= 3 {
			suffix = []string{"st", "nd", "rd"}[i-1]
		}
	}
	return fmt.Sprint(n, suffix)
}

// within reports whether the set is the numbers from its first to its last.
func (s set) within() bool { return s.one() || s.step() == 1 }

func (s set) equal(other ...int) bool { return slices.Equal(s, other) }
