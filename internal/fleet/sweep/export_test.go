package sweep

import "context"

// Turn is what Run does twice a minute.
func (s *Sweeper) Turn(ctx context.Context) error { return s.turn(ctx) }
