package serve

import (
	"errors"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/cronce-io/cronce/internal/codec"
)

// concurrency is the value of --concurrency: N for each queue, QUEUE=N for one.
type concurrency struct {
	each    int
	byQueue map[string]int
}

// Set adds the value of one use of the flag.
func (c *concurrency) Set(text string) error {
	queue, number, named := strings.Cut(text, "=")
	if !named {
		number = text
	} else if err := codec.ValidateName("queue", queue); err != nil {
		return err
	}
	n, err := strconv.Atoi(number)
	switch {
	case err != nil:
		return errors.New("want a number such as 16, or QUEUE=N such as reports=4")
	case n < 1:
		return errors.New("must be at least 1")
	case !named:
		c.each = n
		return nil
	case c.byQueue == nil:
		c.byQueue = map[string]int{}
	}
	c.byQueue[queue] = n
	return nil
}

// queues returns the queues that have a number of their own.
func (c *concurrency) queues() []string { return slices.Sorted(maps.Keys(c.byQueue)) }

func (c *concurrency) String() string { return strconv.Itoa(c.each) }

// Type is not shown: the usage of the flag names its values.
func (c *concurrency) Type() string { return "concurrency" }
