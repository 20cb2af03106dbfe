package ready

import "time"

// Every changes the interval of the checks.
func (s *Services) Every(d time.Duration) { s.interval = d }
