package job

import "time"

// Schedule computes the slots of one job. It is immutable and safe for
// concurrent use.
type Schedule struct{}

// ParseSchedule compiles the plan of the job called name.
func ParseSchedule(name string, p Plan) (*Schedule, error) { return &Schedule{}, nil }

// Next is the first slot strictly after t; zero when there is none any more.
func (s *Schedule) Next(after time.Time) time.Time { return time.Time{} }

// Includes reports whether t is a slot.
func (s *Schedule) Includes(t time.Time) bool { return false }

// Delay is by how much spread puts off each slot's due time.
func (s *Schedule) Delay() time.Duration { return 0 }
