package sweep

import "context"

// Turn is what Run does every minute.
func (s *Sweeper) Turn(ctx context.Context) error { return s.turn(ctx) }
