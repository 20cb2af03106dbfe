package sweep

import "context"

// Turn is what Run does twice a minute.
func (s *Sweeper) Turn(ctx context.Context) error { return s.turn(ctx) }

// AtOnce is how many slots a pass handles at a time.
const AtOnce = atOnce

// MaxMoved is how many jobs a pass asks for their present queues.
const MaxMoved = maxMoved

// MaxUnlisted is for how long a node does not list the others.
const Unlisted = unlisted

// MaxStranded is how many stranded messages a pass keeps.
const MaxStranded = maxStranded

// CleanEvery is how often the sweep removes what is left of jobs and nodes.
const CleanEvery = cleanEvery
