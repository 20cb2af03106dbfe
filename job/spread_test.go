package job

import (
	"fmt"
	"testing"
	"time"

	"github.com/cronce-io/cronce/internal/schedule/cron"
)

func TestAThousandHourlyJobsDoNotFireTogether(t *testing.T) {
	t.Parallel()
	perMinute := map[int]int{}
	for i := range 1000 {
		s, err := ParseSchedule(fmt.Sprint("job-", i), Plan{Schedule: "H * * * *"})
		if err != nil {
			t.Fatal(err)
		}
		perMinute[s.Next(time.Time{}).Minute()]++
	}
	for minute, n := range perMinute {
		if n > 60 {
			t.Errorf("%d of 1000 at minute %d", n, minute)
		}
	}
	if len(perMinute) < 50 {
		t.Errorf("only %d minutes used", len(perMinute))
	}
}

func TestSpreadDelaysTheDueTimeAndNotTheSlot(t *testing.T) {
	t.Parallel()
	delays := map[time.Duration]bool{}
	for i := range 100 {
		s, err := ParseSchedule(fmt.Sprint("job-", i), Plan{Schedule: "0 * * * *", Spread: 5 * time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		d := s.Delay()
		if d < 0 || d >= 5*time.Minute || d%time.Second != 0 || d != time.Duration(cron.StableHash(fmt.Sprint("job-", i), "spread", 300))*time.Second {
			t.Errorf("%s: delay %v", fmt.Sprint("job-", i), d)
		}
		delays[d] = true
		if next := s.Next(time.Unix(0, 0)); next.Unix() != 3600 {
			t.Errorf("the slot moved to %v", next)
		}
	}
	if len(delays) < 50 {
		t.Errorf("only %d delays", len(delays))
	}
}
