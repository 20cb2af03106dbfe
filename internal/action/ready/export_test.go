package ready

import "time"

// Every changes how often services are asked.
func (s *Services) Every(d time.Duration) { s.interval = d }
