package replica_test

import ()

// pending returns the number of unacked messages of the queue.
func (s *site) pending() int {
	s.Helper()
	c, err := s.srv.JetStream().Consumer(s.Context(), "cronce_slots", "default")
	if err != nil {
		s.Fatal(err)
	}
	return c.CachedInfo().NumAckPending
}
