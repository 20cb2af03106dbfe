package serve

import (
	"maps"
	"testing"
)

func TestConcurrencyIsOneNumberAndOneForEachNamedQueue(t *testing.T) {
	t.Parallel()
	c := concurrency{each: 16}
	for _, text := range []string{"reports=4", "8", "mail=1", "reports=2"} {
		if err := c.Set(text); err != nil {
			t.Fatalf("%s: %v", text, err)
		}
	}
	if want := map[string]int{"reports": 2, "mail": 1}; c.each != 8 || !maps.Equal(c.byQueue, want) {
		t.Errorf("got %+v, want 8 and %v", c, want)
	}
}

func TestConcurrencyRefusesWhatIsNoNumber(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"": "want a number such as 16, or QUEUE=N such as reports=4", "x": "want a number such as 16, or QUEUE=N such as reports=4",
		"reports=": "want a number such as 16, or QUEUE=N such as reports=4", "0": "must be at least 1", "reports=0": "must be at least 1", "reports=-1": "must be at least 1",
		"a.b=1": `invalid queue name "a.b": want 1 to 64 characters of A-Z a-z 0-9 _ -`,
	} {
		if err := new(concurrency).Set(text); err == nil || err.Error() != want {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}
