// Command bench gives Cronce and other schedulers the same work, one after the other on one
// machine, and writes a table and a plot of the results. run.sh installs and starts the servers that
// it needs.
//
// The work is runs with a payload of about 90 bytes and a handler that does nothing. First they are
// entered while no worker runs, and then drained by one worker process, which is this one. Then
// some runs are entered for each of the next seconds, and the handlers note how late they start.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	postgres := flag.String("postgres", "", "`URL` of a database for River")
	redis := flag.String("redis", "", "`host:port` of a Redis for asynq")
	redisSynced := flag.String("redis-sync", "", "`host:port` of a Redis with appendfsync always")
	server := flag.String("nats", "", "`URL` of a nats-server with its default sync_interval")
	synced := flag.String("nats-sync", "", "`URL` of a nats-server with sync_interval always")
	n := flag.Int("n", 40_000, "how many runs are drained")
	each := flag.Int("each", 100, "how many runs are due each second when lateness is measured")
	seconds := flag.Int("seconds", 10, "for how many seconds runs are due")
	turns := flag.Int("turns", 2, "how often each peer is measured; the best value of each number counts")
	limit := flag.Duration("limit", 5*time.Minute, "timeout of one measurement")
	about := flag.String("about", "", "`file` with the machine, the versions and the commands, for benchmarks.md")
	docs := flag.String("docs", "", "write benchmarks.md and benchmarks.svg into this `dir`")
	flag.Parse()
	peers := []peer{
		// The peers that sync each write come first, because they keep the same promise.
		&croncePeer{url: *synced, title: "Cronce, synced", keeps: "sync_interval always"},
		&riverPeer{url: *postgres},
		&asynqPeer{addr: *redisSynced, title: "asynq, synced", keeps: "appendfsync always"},
		&croncePeer{url: *server, title: "Cronce", keeps: "sync_interval 2m (the default)"},
		&asynqPeer{addr: *redis, title: "asynq", keeps: "appendfsync everysec"},
		&schedulesPeer{url: *server},
	}
	rows := make([]row, len(peers))
	for turn := range *turns {
		for i, p := range peers {
			r, err := measure(ctx, p, *n, *each, *seconds, *limit)
			if err != nil {
				return err
			}
			rows[i] = best(rows[i], r)
			line, err := json.Marshal(struct {
				Turn int `json:"turn"`
				row
			}{turn + 1, r})
			if err != nil {
				return err
			}
			fmt.Println(string(line))
		}
	}
	if *docs == "" {
		return nil
	}
	text, err := os.ReadFile(*about)
	if err != nil {
		return err
	}
	return write(*docs, rows, string(text), *n, *each)
}

// measure takes all measurements of a peer once.
func measure(ctx context.Context, p peer, n, each, seconds int, limit time.Duration) (row, error) {
	r := row{Name: p.name(), Settings: p.settings()}
	for _, m := range []struct {
		what string
		do   func(context.Context) error
	}{
		{"drain", func(ctx context.Context) error { return drain(ctx, p, n, &r) }},
		{"lateness", func(ctx context.Context) error { return lateness(ctx, p, each, seconds, &r) }},
	} {
		fmt.Fprintf(os.Stderr, "%s: %s\n", p.name(), m.what)
		limited, cancel := context.WithTimeout(ctx, limit)
		err := m.do(limited)
		cancel()
		if err != nil {
			return r, fmt.Errorf("%s: %s: %w", p.name(), m.what, err)
		}
	}
	return r, nil
}

// best returns the better value of each number, because a disturbance only makes a measurement worse.
func best(a, b row) row {
	if a.Name == "" {
		return b
	}
	a.Entered, a.Worked = max(a.Entered, b.Entered), max(a.Worked, b.Worked)
	a.P50, a.P99 = min(a.P50, b.P50), min(a.P99, b.P99)
	return a
}

func write(dir string, rows []row, about string, n, each int) error {
	var md strings.Builder
	fmt.Fprintf(&md, `# Benchmarks against other schedulers

All of these did the same work, in turn on one machine: %d runs with a payload of about 90 bytes and a handler that does
nothing were entered, and then drained by one worker process. Then %d runs were due each second, and their lateness was
measured. Each was measured several times, and the best value of each number counts. [integration/bench](../integration/bench/run.sh)
wrote this page. It is a module of its own.

| | runs entered a second | runs drained a second | lateness, median | lateness, 99th percentile |
|---|---|---|---|---|
`, n, each)
	for _, r := range rows {
		fmt.Fprintf(&md, "| %s | %.0f | %.0f | %.1f ms | %.1f ms |\n", r.Name, r.Entered, r.Worked, r.P50, r.P99)
	}
	md.WriteString("\n![runs drained a second](benchmarks.svg)\n\n## How each one is set up\n\n")
	for _, r := range rows {
		fmt.Fprintf(&md, "- **%s**: %s.\n", r.Name, r.Settings)
	}
	fmt.Fprintf(&md, `
## What to make of it

- Compare the first three rows with each other: in these, whatever was acknowledged survives a power cut. In the others, what is newer
  than the sync interval (two minutes, one second) may be lost if the machine fails. A cluster of three NATS servers keeps it,
  unless all of them fail at the same time.
- PostgreSQL syncs once for all transactions that commit at the same time. Cronce groups its writes in the server's atomic
  batches, which nats-server syncs at most a few times each, but it acknowledges each run by itself, and the server syncs each
  of these acknowledgements.
- In favour of Cronce: the servers and the worker are on one machine, and speak over loopback, with no network between them.
- Cronce and River enter 5,000 runs with each call, as their documentation advises. Each trigger of Cronce has its own key and
  result, and a repeated call triggers nothing twice. River's fast insertion has no keys.
- Not in favour of Cronce: Cronce and River record each outcome. asynq keeps no record of runs that succeeded, and nats-server's
  schedules record nothing. Cronce runs with its default of 16 handlers at once, River with 2,000 and asynq with 100.
- Lateness is measured on runs that were triggered for a later time, which the server's timers publish. A producer publishes the
  slots of a schedule: "cronce-lab bench" measures their lateness.
- The load of the machine is given below. If it was high, only large differences mean something.

## Machine, versions and commands

%s
`, about)
	if err := os.WriteFile(dir+"/benchmarks.md", []byte(md.String()), 0o644); err != nil {
		return err
	}
	return os.WriteFile(dir+"/benchmarks.svg", plot(rows), 0o644)
}

// plot draws a bar for each peer, whose length shows the runs that its worker ran in a second.
func plot(rows []row) []byte {
	const left, width, bar, gap = 170, 420, 22, 10
	most := 1.0
	for _, r := range rows {
		most = max(most, r.Worked)
	}
	var b bytes.Buffer
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" font-family="sans-serif" font-size="13">`+"\n", left+width+90, gap+len(rows)*(bar+gap))
	b.WriteString(`<rect width="100%" height="100%" fill="white"/>` + "\n")
	for i, r := range rows {
		y := gap + i*(bar+gap)
		w := r.Worked / most * width
		colour := "#8a9ba8"
		if strings.HasPrefix(r.Name, "Cronce") {
			colour = "#2b6cb0"
		}
		fmt.Fprintf(&b, `<text x="%d" y="%d" text-anchor="end">%s</text>`, left-8, y+16, r.Name)
		fmt.Fprintf(&b, `<rect x="%d" y="%d" width="%.0f" height="%d" fill="%s"/>`, left, y, w, bar, colour)
		fmt.Fprintf(&b, `<text x="%.0f" y="%d">%.0f/s</text>`+"\n", left+w+6, y+16, r.Worked)
	}
	b.WriteString("</svg>\n")
	return b.Bytes()
}
