// Package codec reads and writes the values that nodes store and exchange as JSON.
//
// A value carries its format version. Members that this program does not know are kept
// when the value is written again, so that an older node does not remove what a newer
// one stored. Every value from the broker may have been written by anyone with a login,
// so each decoder checks its members with Bounds: counts, lengths, times, and words of a
// known set. The package is pure: it has no clock, no broker and no goroutine.
package codec
