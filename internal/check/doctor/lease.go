package doctor

import "fmt"

// leases is about nodes that go by other settings than those that are stored.
func (c *check) leases() {
	var other []string
	for _, n := range c.live() {
		if n.Lease != c.Survey.Settings.Lease {
			other = append(other, fmt.Sprintf("%s (lease %v)", n.Name, n.Lease))
		}
	}
	if len(other) > 0 {
		c.add(Warning, "settings", "node "+few(other), fmt.Sprintf("the stored lease is %v: they started with other settings, and keep those until they are restarted", c.Survey.Settings.Lease),
			"parts of the fleet wait for different times before they take a silent node's slots", "restart them; if the settings were lost: "+c.cronce("setup --lease D")+", with what was stored before")
	}
}
