package wire

import (
	"sync"
	"sync/atomic"
	"time"
)

const (
	// SlowStorage is the time of one more message from which on storage counts as slow. Storage that
	// syncs each message needs 150 µs or more. Other storage needs 20 to 60 µs, and so does a
	// cluster, which syncs its log for many messages at once. On storage that is not slow, batches
	// halve the rate of the writes that slots wait for.
	SlowStorage = 150 * time.Microsecond

	// beyondDoubt is the time of one more message from which on one measured round proves that the
	// storage is slow. Between SlowStorage and beyondDoubt, it takes two rounds.
	beyondDoubt = 400 * time.Microsecond

	// window is how many single messages may be open at once before the storage has been
	// measured. They cost slow storage about as much as one batch.
	window = minBatch

	// wideWindow replaces window after a first round that proved nothing; see beyondDoubt. The second
	// round is larger, because on a busy machine most of the time of a small round is not spent in
	// the storage.
	wideWindow = 4 * window

	// slowWindow is how many messages are sent at once, without waiting, on slow storage. It
	// stores one after another. If more were sent at once, they would not be stored any sooner,
	// and could not go in a batch.
	slowWindow = 4

	// On slow storage, a group probes after probeEvery: it sends the messages of one round singly,
	// to measure the storage again. If the storage is still slow, the time until the next probe
	// doubles, up to maxProbe.
	probeEvery = 100 * time.Millisecond
	maxProbe   = time.Minute
)

// storage measures how long one more message takes on the broker's storage. All groups of a
// connection share it, since a server syncs each message of all streams, or of none.
//
// Invariants:
//   - The storage counts as slow only if each of the last measured rounds was slow: a busy machine
//     makes a round longer, never shorter.
//   - The distance to the broker does not count.
type storage struct {
	distance *distance
	pace     atomic.Int64 // time of one more message, in ns; 0: not known
	doubtful atomic.Bool  // one round was measured, and it proved nothing; see beyondDoubt

	mu       sync.Mutex
	last     time.Duration // time of one more message in the last measured round; 0: none was measured
	probed   time.Time     // when the last measured round ended, or the last probe began
	distant  bool          // in the last measured round, only the distance to the broker took long
	interval time.Duration // between two probes, while the storage is slow or the broker distant
	strain   time.Duration // running average of the time of one more message, while the storage counts as fast
}

// known returns the time of one more message; 0: it is not known.
func (s *storage) known() time.Duration { return time.Duration(s.pace.Load()) }

func (s *storage) slow() bool { return s.known() >= SlowStorage }

// window returns how many messages of a stream may be open before further ones wait.
func (s *storage) window() int {
	switch {
	case s.slow():
		return slowWindow
	case s.known() > 0:
		return 1 << 20
	case s.doubtful.Load():
		return wideWindow
	}
	return window
}

// measure records a round of n messages that took so long.
func (s *storage) measure(took time.Duration, n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.probed = time.Now()
	pace := max((took-s.distance.least())/time.Duration(n-1), 1)
	known := pace
	switch {
	case s.last > 0:
		known = min(pace, s.last)
	case SlowStorage <= pace && pace < beyondDoubt:
		known = 0
	}
	s.last = pace
	s.pace.Store(int64(known))
	s.doubtful.Store(known == 0)
	s.distant = pace < SlowStorage && SlowStorage <= took/time.Duration(n)
	if s.interval = min(2*s.interval, maxProbe); s.interval == 0 || !s.slow() && !s.distant {
		s.interval = probeEvery
	}
}

// probe reports whether it is time to measure slow storage again. If it is, the caller measures it, and
// the interval begins anew.
func (s *storage) probe(now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if now.Sub(s.probed) < s.interval {
		return false
	}
	s.probed = now
	return true
}

// doubtDistance discards the measurements if the last one was of a distant broker, and it is time to
// measure again: a busy machine makes a broker seem more distant than it is.
func (s *storage) doubtDistance() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.distant && time.Since(s.probed) >= s.interval {
		s.forget()
	}
}

// strained records the time that a message took. ahead is the number of messages of its round that
// were open when it was sent. If storage that was fast has become slow, strained discards the
// measurements, so that the next round is measured. Messages sent before the last round was measured
// do not count, so one pause of a busy machine discards the measurements only once.
func (s *storage) strained(ahead int, took time.Duration) {
	if ahead < window {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.slow() || time.Since(s.probed) < took {
		return
	}
	took = max(took-s.distance.least(), 0)
	s.strain += (took/time.Duration(ahead+1) - s.strain) / 32
	if s.strain >= beyondDoubt {
		s.forget()
	}
}

// forget discards the measurements. The caller holds the lock.
func (s *storage) forget() {
	s.last, s.strain, s.probed, s.distant = 0, 0, time.Now(), false
	s.pace.Store(0)
	s.doubtful.Store(false)
}
