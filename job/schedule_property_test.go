package job_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/robfig/cron/v3"
	"pgregory.net/rapid"

	"github.com/cronce-io/cronce/internal/schedule/tzdata"
	"github.com/cronce-io/cronce/job"
)

// drawField draws one field of a cron expression. Stars are frequent, as in real expressions.
func drawField(t *rapid.T, label string, low, high int) string {
	number := rapid.IntRange(low, high)
	item := func() string {
		a, b := number.Draw(t, label), number.Draw(t, label)
		a, b = min(a, b), max(a, b)
		step := rapid.IntRange(1, high-low+1).Draw(t, label+" step")
		switch rapid.IntRange(0, 5).Draw(t, label+" form") {
		case 0:
			return fmt.Sprintf("%d-%d", a, b)
		case 1:
			return fmt.Sprintf("%d-%d/%d", a, b, step)
		case 2:
			return fmt.Sprintf("*/%d", step)
		case 3:
			return fmt.Sprintf("%d/%d", a, step)
		default:
			return fmt.Sprint(a)
		}
	}
	if rapid.IntRange(0, 2).Draw(t, label+" any") == 0 {
		return "*"
	}
	items := []string{item()}
	for range rapid.IntRange(0, 2).Draw(t, label+" more") {
		items = append(items, item())
	}
	return strings.Join(items, ",")
}

func drawExpression(t *rapid.T, label string) string {
	fields := []string{
		drawField(t, label+" minute", 0, 59), drawField(t, label+" hour", 0, 23), drawField(t, label+" dom", 1, 31),
		drawField(t, label+" month", 1, 12), drawField(t, label+" dow", 0, 6),
	}
	return strings.Join(fields, " ")
}

// drawRelative draws an expression that may have the forms that robfig/cron does not know.
func drawRelative(t *rapid.T, label string) string {
	fields := strings.Fields(drawExpression(t, label))
	day := rapid.OneOf(rapid.SampledFrom([]string{"L", "LW"}),
		rapid.Map(rapid.IntRange(1, 30), func(n int) string { return fmt.Sprintf("L-%d", n) }),
		rapid.Map(rapid.IntRange(1, 31), func(n int) string { return fmt.Sprintf("%dW", n) }))
	weekday := rapid.OneOf(
		rapid.SampledFrom([]string{"SUNL", "MONL", "5L", "7L", "SATL"}),
		rapid.Custom(func(t *rapid.T) string {
			return fmt.Sprintf("%d#%d", rapid.IntRange(0, 7).Draw(t, "weekday"), rapid.IntRange(1, 5).Draw(t, "nth"))
		}))
	for i, g := range [5]*rapid.Generator[string]{2: day, 4: weekday} {
		if g == nil {
			continue
		}
		switch rapid.IntRange(0, 3).Draw(t, label+" relative") {
		case 0:
			fields[i] = g.Draw(t, label)
		case 1:
			fields[i] += "," + g.Draw(t, label)
		}
	}
	return strings.Join(fields, " ")
}

func drawPlan(t *rapid.T) job.Plan {
	p := job.Plan{Schedule: drawRelative(t, "schedule"), Timezone: rapid.SampledFrom(judgedZones).Draw(t, "zone")}
	if rapid.Bool().Draw(t, "with exclusions") {
		p.Exclude = append(p.Exclude, drawRelative(t, "exclude"))
	}
	policy := rapid.SampledFrom(policies).Draw(t, "policy")
	p.DSTGap, p.DSTOverlap = policy.DSTGap, policy.DSTOverlap
	return p
}

func drawInstant(t *rapid.T, label string) int64 {
	return rapid.Int64Range(time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC).Unix(), time.Date(2038, 1, 1, 0, 0, 0, 0, time.UTC).Unix()).Draw(t, label)
}

func TestAnyExpressionAgreesWithASecondImplementation(t *testing.T) {
	t.Parallel()
	changes, err := transitions()
	if err != nil {
		t.Fatal(err)
	}
	rapid.Check(t, func(t *rapid.T) {
		p := drawPlan(t)
		near := drawInstant(t, "near")
		if c := changes[p.Timezone]; len(c) > 0 && rapid.Bool().Draw(t, "at a transition") {
			near = rapid.SampledFrom(c).Draw(t, "transition")
		}
		p.Exclude = append(p.Exclude, time.Unix(near, 0).UTC().AddDate(0, 0, rapid.IntRange(-2, 2).Draw(t, "date")).Format(time.DateOnly))
		loc, err := tzdata.Load(p.Timezone)
		if err != nil {
			t.Fatal(err)
		}
		agree(t, p, loc, newWalk(loc, naiveStep(p.Schedule), near-2*day, near+2*day))
	})
}

// The window of TestAnyExpressionAgreesWithASecondImplementation has few dates, so this test walks over years.
func TestDatesOfYearsAgreeWithASecondImplementation(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		days := strings.Fields(drawRelative(t, "schedule"))[2:]
		p := job.Plan{Schedule: "0 0 " + strings.Join(days, " ")}
		if rapid.Bool().Draw(t, "with exclusions") {
			p.Exclude = []string{"* * " + strings.Join(strings.Fields(drawRelative(t, "exclude"))[2:], " ")}
		}
		s, err := job.ParseSchedule("report", p)
		if err != nil && strings.Contains(err.Error(), "can never fire") {
			t.Skip(err) // a draw without slots shows nothing here
		}
		if err != nil {
			t.Fatal(err)
		}
		match, excluded := naiveMatch(p.Schedule, 0), func(time.Time) bool { return false }
		if len(p.Exclude) > 0 {
			excluded = naiveMatch(p.Exclude[0], -1)
		}
		from := time.Unix(drawInstant(t, "from"), 0).UTC().Truncate(24 * time.Hour)
		var want []time.Time
		for d := from; d.Before(from.AddDate(2, 0, 0)); d = d.AddDate(0, 0, 1) {
			if match(d) && !excluded(d) {
				want = append(want, d)
			}
		}
		if got := slices.Collect(s.Between(from.Add(-1), from.AddDate(2, 0, 0).Add(-time.Second))); !slices.EqualFunc(got, want, time.Time.Equal) {
			t.Fatalf("%+v:\n got %v\nwant %v", p, got, want)
		}
	})
}

// In a zone without clock changes, robfig/cron is the reference.
func TestAnyExpressionInUTCAgreesWithTheParsersOwnSearch(t *testing.T) {
	t.Parallel()
	parser := cron.NewParser(cron.SecondOptional | cron.Minute | cron.Hour | cron.Dom | cron.Month | cron.Dow)
	rapid.Check(t, func(t *rapid.T) {
		text := drawExpression(t, "schedule")
		if rapid.Bool().Draw(t, "with seconds") {
			text = drawField(t, "second", 0, 59) + " " + text
		}
		theirs, err := parser.Parse("TZ=UTC " + text)
		if err != nil {
			t.Fatal(err)
		}
		ours, err := job.ParseSchedule("report", job.Plan{Schedule: text})
		u := time.Unix(drawInstant(t, "after"), 0).UTC()
		for range 20 {
			want := theirs.Next(u)
			if want.IsZero() { // robfig/cron searches five years only
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if got := ours.Next(u); !got.Equal(want) {
				t.Fatalf("%s after %v: %v, want %v", text, u, got, want)
			}
			u = want
		}
	})
}

// The second implementation adds days to the date of from, and asks package time for the instant.
func TestEveryInDaysAgreesWithASecondImplementation(t *testing.T) {
	t.Parallel()
	changes, err := transitions()
	if err != nil {
		t.Fatal(err)
	}
	rapid.Check(t, func(t *rapid.T) {
		days := rapid.IntRange(1, 40).Draw(t, "days")
		name := rapid.SampledFrom(judgedZones).Draw(t, "zone")
		p := job.Plan{Schedule: fmt.Sprintf("@every %dd", days), Timezone: name, DSTGap: job.GapSkip, DSTOverlap: job.RepeatBoth}
		near := drawInstant(t, "near")
		if c := changes[name]; len(c) > 0 {
			near = rapid.SampledFrom(c).Draw(t, "transition") - rapid.Int64Range(-day, day).Draw(t, "away") - int64(days)*day*rapid.Int64Range(0, 3).Draw(t, "periods")
		}
		p.From = time.Unix(near, 0)
		s, err := job.ParseSchedule("report", p)
		if err != nil {
			t.Fatal(err)
		}
		begin := wallTime(s.Location(), near)
		want := map[int64]bool{}
		for n := range 5 {
			wall := begin.AddDate(0, 0, n*days)
			for u := wall.Unix() - day; u <= wall.Unix()+day; u += 900 { // no zone is further from UTC, and all are full quarters of an hour
				if at := u - u%900 + wall.Unix()%900; at >= near && wallTime(s.Location(), at).Equal(wall) {
					want[at] = true
				}
			}
		}
		got := slices.Collect(s.Between(p.From.Add(-time.Second), begin.AddDate(0, 0, 4*days).Add(26*time.Hour)))
		for _, slot := range got {
			if !want[slot.Unix()] && slot.Before(begin.AddDate(0, 0, 5*days).Add(-26*time.Hour)) {
				t.Fatalf("%+v: %v is no slot", p, slot)
			}
			delete(want, slot.Unix())
		}
		if len(want) > 0 {
			t.Fatalf("%+v: %d slots are left out of %v", p, len(want), got)
		}
	})
}

func TestNextBetweenLastCountAndIncludesSayTheSame(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		p := drawPlan(t)
		if rapid.Bool().Draw(t, "every") {
			p.Schedule = fmt.Sprintf("@every %ds", rapid.IntRange(1, 100000).Draw(t, "period"))
		}
		from := drawInstant(t, "from")
		if rapid.Bool().Draw(t, "bounded") {
			p.From = time.Unix(from+rapid.Int64Range(-day, day).Draw(t, "lower bound"), 0)
			p.Until = p.From.Add(time.Duration(rapid.Int64Range(1, 300).Draw(t, "days")) * 24 * time.Hour)
		}
		s, err := job.ParseSchedule("report", p)
		if err != nil && strings.Contains(err.Error(), "can never fire") {
			t.Skip(err) // a draw without slots shows nothing here
		}
		if err != nil {
			t.Fatal(err)
		}
		after := time.Unix(from, rapid.Int64Range(0, 999999999).Draw(t, "fraction"))
		until := after.Add(time.Duration(rapid.Int64Range(0, 2*day).Draw(t, "window")) * time.Second)
		slots := slices.Collect(s.Between(after, until))

		before := after
		for _, slot := range slots {
			if !slot.After(before) || slot.After(until) || !s.Includes(slot) || s.Includes(slot.Add(1)) || !s.Next(before).Equal(slot) {
				t.Fatalf("%v after %v", slot, before)
			}
			if !p.From.IsZero() && (slot.Before(p.From) || !slot.Before(p.Until)) {
				t.Fatalf("%v is out of bounds", slot)
			}
			before = slot
		}
		if next := s.Next(before); !next.IsZero() && !next.After(until) {
			t.Fatalf("%v is left out", next)
		}
		if n := s.Count(after, until); n != len(slots) {
			t.Fatalf("Count says %d, Between yields %d", n, len(slots))
		}
		n := rapid.IntRange(0, 50).Draw(t, "n")
		if got, want := s.Last(after, until, n), slots[max(0, len(slots)-n):]; !slices.Equal(got, want) {
			t.Fatalf("the last %d are %v, want %v", n, got, want)
		}
	})
}

func TestEveryWithExclusionsAgreesWithASecondImplementation(t *testing.T) {
	t.Parallel()
	changes, err := transitions()
	if err != nil {
		t.Fatal(err)
	}
	rapid.Check(t, func(t *rapid.T) {
		period := rapid.Int64Range(60, 20000).Draw(t, "period")
		exclude := drawField(t, "minute", 0, 59) + " " + drawField(t, "hour", 0, 23) + " * * *"
		name := rapid.SampledFrom(judgedZones).Draw(t, "zone")
		near := drawInstant(t, "near")
		if c := changes[name]; len(c) > 0 {
			near = rapid.SampledFrom(c).Draw(t, "transition")
		}
		p := job.Plan{Schedule: fmt.Sprintf("@every %ds", period), Timezone: name, Exclude: []string{exclude}}
		s, err := job.ParseSchedule("report", p)
		if err != nil && strings.Contains(err.Error(), "can never fire") {
			t.Skip(err) // a draw without slots shows nothing here
		}
		if err != nil {
			t.Fatal(err)
		}
		from, to := near-day, near+day
		var want, got []int64
		excluded := naiveMatch(exclude, -1)
		for u := from + 1; u <= to; u++ {
			if u%period == 0 && !excluded(wallTime(s.Location(), u)) {
				want = append(want, u)
			}
		}
		for slot := range s.Between(time.Unix(from, 0), time.Unix(to, 0)) {
			got = append(got, slot.Unix())
		}
		if !slices.Equal(got, want) {
			t.Fatalf("%+v: got %v, want %v", p, got, want)
		}
	})
}
