package main

import (
	"time"

	"github.com/spf13/pflag"

	"github.com/cronce-io/cronce/internal/lab/proxy"
)

// distanceFlags say how far the fleet is from its servers.
type distanceFlags struct {
	rtt       time.Duration
	megabytes int
}

func (d *distanceFlags) add(flags *pflag.FlagSet) {
	flags.DurationVar(&d.rtt, "rtt", proxy.Near.RTT, "`round trip` between the fleet and its servers, added to that of the network; 0s adds none")
	flags.IntVar(&d.megabytes, "bandwidth", 0, "`MB` a second between the fleet and its servers, in each direction (default no limit)")
}

func (d *distanceFlags) distance() (proxy.Distance, error) {
	at := proxy.Distance{RTT: d.rtt, Bandwidth: d.megabytes * 1_000_000}
	return at, at.Validate()
}
