package verify

import (
	"iter"
	"maps"
	"math/bits"
	"slices"
)

// instants is a set of instants in seconds since 1970. It has one word for each 64 seconds in
// which there is an instant. The zero value is empty and read-only.
type instants map[int64]uint64

func word(unix int64) (key int64, bit uint64) { return unix >> 6, 1 << (unix & 63) }

func (s instants) add(unix int64) {
	key, bit := word(unix)
	s[key] |= bit
}

func (s instants) has(unix int64) bool {
	key, bit := word(unix)
	return s[key]&bit != 0
}

// take removes an instant, and reports whether it was in the set.
func (s instants) take(unix int64) bool {
	key, bit := word(unix)
	old := s[key]
	if old&bit == 0 {
		return false
	}
	if old &^= bit; old == 0 {
		delete(s, key)
	} else {
		s[key] = old
	}
	return true
}

// all yields the instants in ascending order. It may or may not yield instants that are taken
// while it runs.
func (s instants) all() iter.Seq[int64] {
	return func(yield func(int64) bool) {
		for _, key := range slices.Sorted(maps.Keys(s)) {
			for w := s[key]; w != 0; w &= w - 1 {
				if !yield(key<<6 + int64(bits.TrailingZeros64(w))) {
					return
				}
			}
		}
	}
}
