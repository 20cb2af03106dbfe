package output

import "time"

const (
	// Rate bounds how much of an attempt's output is sent, in bytes per second.
	Rate = 64 << 10

	// maxPiece bounds the output of one event, in bytes. As JSON it has at most six times as many.
	maxPiece = 16 << 10
)

// Feed selects which output of an attempt is sent while a client follows it. In each second it
// takes the first Rate bytes, and leaves out the rest. It is not safe for concurrent use.
type Feed struct {
	pending []byte
	from    int64 // where pending begins in the attempt's output
	end     int64 // where the output ends
	full    bool  // output after pending was left out
	second  time.Time
	taken   int // bytes added to pending since second
}

// Piece is a part of an attempt's output. If a piece does not begin where the one before ended,
// the output between them was left out. An empty piece marks that output before it was left out.
type Piece struct {
	From, To int64
	Text     string
}

// Add takes p, the next output of the attempt. at is how many bytes the attempt has written before
// it.
func (f *Feed) Add(p []byte, at int64, now time.Time) {
	if now.Sub(f.second) >= time.Second || now.Before(f.second) {
		f.second, f.taken = now, 0
	}
	if f.end = at + int64(len(p)); f.full {
		return // pending must have no gap
	}
	if len(f.pending) == 0 {
		f.from = at
	}
	n := min(len(p), Rate-f.taken)
	f.pending, f.taken, f.full = append(f.pending, p[:n]...), f.taken+n, n < len(p)
}

// Take returns what is pending, in pieces. It keeps an incomplete character at the end for the next
// call, unless last is true or output after it was left out.
func (f *Feed) Take(last bool) (pieces []Piece) {
	p, from := string(f.pending), f.from
	for len(p) > 0 {
		piece := withoutCutEnd(p[:min(len(p), maxPiece)])
		if piece == "" {
			if !last && !f.full {
				break
			}
			piece = p
		}
		to := from + int64(len(piece))
		pieces = append(pieces, Piece{from, to, Valid(piece)})
		p, from = p[len(piece):], to
	}
	if f.full {
		pieces = append(pieces, Piece{From: f.end, To: f.end})
	}
	f.pending, f.from, f.full = append(f.pending[:0], p...), from, false
	return pieces
}
