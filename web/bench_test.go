package web_test

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/cronce-io/cronce/internal/broker/space"
	"github.com/cronce-io/cronce/internal/core/plans"
	"github.com/cronce-io/cronce/internal/lab/filetest"
	"github.com/cronce-io/cronce/internal/lab/kvtest"
	"github.com/cronce-io/cronce/internal/lab/natstest"
	"github.com/cronce-io/cronce/job"
	"github.com/cronce-io/cronce/kv"
)

const (
	benchJobs     = 1000
	benchRecords  = 1_000_000
	benchBrowsers = 100
	benchSlots    = 100 // a second
)

// BenchmarkDashboard measures "cronce ui", a process of its own, beside a namespace with 1,000 jobs
// and a ledger of a million records: what a page costs, and what open pages cost while slots run.
// The processor times are those of that process alone, so that they hold on a busy machine too.
func BenchmarkDashboard(b *testing.B) {
	if runtime.GOOS != "linux" {
		b.Skip("reads /proc")
	}
	f := newBenchFleet(b)
	u := f.startUI(b)
	began := time.Now()
	natstest.Eventually(b, "the first page", func() bool { return u.get(b, "/jobs", "").status == http.StatusOK })
	b.Logf("the first page of a new process came after %v and %v of processor time", time.Since(began).Round(time.Millisecond), u.cpu(b))
	natstest.Eventually(b, "the end of the check of the last day, which is computed in the background", func() bool {
		text := unzip(b, u.get(b, "/", "").body)
		time.Sleep(time.Second)
		return strings.Contains(text, "were checked") || strings.Contains(text, "The check failed")
	})
	b.Logf("the doctor and the check of the last day ended after %v of processor time", u.cpu(b))
	name := benchName(7)
	for _, path := range []string{"/", "/jobs", "/jobs/" + name, "/jobs/" + name + "?range=week", "/slots", "/slots/" + f.newest, "/nodes", "/health", "/activity", "/schedule?spec=30+2+*+*+*"} {
		b.Run("page="+strings.ReplaceAll(path, name, "JOB"), func(b *testing.B) { u.benchmarkPage(b, path) })
	}
	b.Run("weight", func(b *testing.B) { u.benchmarkWeight(b) })
	b.Run("open", func(b *testing.B) { u.benchmarkOpen(b, f.broker) })
	b.Run("busy", func(b *testing.B) { f.benchmarkBusy(b, u) })
}

type benchFleet struct {
	broker *natstest.Server
	store  *kv.Store
	newest string // the ID of a slot
}

func benchName(i int) string { return fmt.Sprintf("customer-report-%04d", i%benchJobs) }

func benchRecord(i int, at time.Time) job.Record {
	return job.Record{
		Slot: job.NewSlot(benchName(i), at), Queue: "default", State: job.Succeeded, Attempt: 1, MaxAttempts: 3, Node: "worker-1-1763700000-abcdefgh",
		Attempts: []job.Attempt{{Number: 1, Node: "worker-1-1763700000-abcdefgh", Fence: 1, Started: at.Add(12 * time.Millisecond)}}, Nonce: fmt.Sprint(i),
		Due: at, Published: at, Finished: at.Add(time.Second),
	}
}

func newBenchFleet(b *testing.B) *benchFleet {
	b.Helper()
	s := natstest.Run(b)
	js := s.JetStream()
	if _, err := space.Setup(b.Context(), js, kv.Options{}); err != nil {
		b.Fatal(err)
	}
	store := kvtest.Open(b, js, kv.Options{})
	newest := time.Now().UTC().Truncate(time.Minute)
	oldest := newest.Add(-(benchRecords/benchJobs - 1) * time.Minute)
	for i := range benchJobs {
		d := plans.Definition{Job: job.Job{Name: benchName(i), Schedule: "* * * * *"}, Since: oldest.Add(-time.Second), Nonce: "n"}
		if _, err := store.Jobs().Write(b.Context(), d, 0); err != nil {
			b.Fatal(err)
		}
	}
	began := time.Now()
	fillLedger(b, js, func(i int) job.Record { return benchRecord(i, oldest.Add(time.Duration(i/benchJobs)*time.Minute)) })
	b.Logf("the ledger has %d records after %v", benchRecords, time.Since(began).Round(time.Second))
	return &benchFleet{s, store, job.NewSlot(benchName(7), newest).ID()}
}

// fillLedger publishes the records without the checks of a client, which would take minutes for a
// million records.
func fillLedger(b *testing.B, js jetstream.JetStream, record func(i int) job.Record) {
	b.Helper()
	for i := range benchRecords {
		r := record(i)
		data, err := r.MarshalJSON()
		if err == nil {
			_, err = js.PublishAsync("$KV.cronce_ledger."+r.Slot.Key(), data)
		}
		if err != nil {
			b.Fatal(err)
		}
		if i%2000 == 1999 { // a client bounds what waits for an answer
			<-js.PublishAsyncComplete()
		}
	}
	<-js.PublishAsyncComplete()
}

// ui is a process that serves the dashboard.
type ui struct {
	url  string
	pid  int
	http *http.Client
}

func (f *benchFleet) startUI(b *testing.B) *ui {
	b.Helper()
	program := filepath.Join(b.TempDir(), "cronce")
	if out, err := exec.Command("go", "build", "-trimpath", "-ldflags=-s -w", "-o", program, "../cmd/cronce").CombinedOutput(); err != nil {
		b.Fatalf("%v: %s", err, out)
	}
	addr := natstest.FreeAddress(b)
	c := exec.Command(program, "ui", "--listen", addr, "--server", f.broker.ClientURL())
	var said bytes.Buffer
	c.Stderr = &said
	if err := c.Start(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		_ = c.Process.Signal(os.Interrupt)
		_ = c.Wait()
		if b.Failed() {
			b.Log(said.String())
		}
	})
	return &ui{"http://" + addr, c.Process.Pid, &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: benchBrowsers, DisableCompression: true}}}
}

// cpu is the processor time of the process so far.
func (u *ui) cpu(b *testing.B) time.Duration {
	b.Helper()
	_, rest, _ := strings.Cut(string(filetest.Read(b, fmt.Sprintf("/proc/%d/stat", u.pid))), ") ")
	fields := strings.Fields(rest)
	var ticks int
	for _, f := range fields[11:13] { // in user mode, and in the kernel
		n, err := strconv.Atoi(f)
		if err != nil {
			b.Fatal(err)
		}
		ticks += n
	}
	return time.Duration(ticks) * time.Second / 100
}

// resident is the memory of the process, in kB.
func (u *ui) resident(b *testing.B) int {
	b.Helper()
	m := regexp.MustCompile(`VmRSS:\s+(\d+) kB`).FindSubmatch(filetest.Read(b, fmt.Sprintf("/proc/%d/status", u.pid)))
	n, err := strconv.Atoi(string(m[1]))
	if err != nil {
		b.Fatal(err)
	}
	return n
}

type gotten struct {
	status int
	first  time.Duration // until the first byte
	body   []byte        // compressed
}

// get requests a page. live is the ID of the stream whose message made the browser refresh the
// page, or "".
func (u *ui) get(t testing.TB, path, live string) (g gotten) {
	r, err := http.NewRequest(http.MethodGet, u.url+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Accept-Encoding", "gzip")
	r.Header.Set("Cronce-Live", live)
	began := time.Now()
	r = r.WithContext(httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{GotFirstResponseByte: func() { g.first = time.Since(began) }}))
	w, err := u.http.Do(r)
	if err != nil {
		return g // it is not up yet, or ends
	}
	defer w.Body.Close()
	g.status = w.StatusCode
	g.body, _ = io.ReadAll(w.Body)
	return g
}

func (u *ui) benchmarkPage(b *testing.B, path string) {
	natstest.Eventually(b, "the page", func() bool { return u.get(b, path, "").status == http.StatusOK })
	var first []time.Duration
	var sent int
	before := u.cpu(b)
	for b.Loop() {
		g := u.get(b, path, "")
		if g.status != http.StatusOK {
			b.Fatal(g.status)
		}
		first, sent = append(first, g.first), len(g.body)
	}
	used := u.cpu(b) - before
	slices.Sort(first)
	b.ReportMetric(float64(first[len(first)/2].Microseconds())/1000, "ms-to-first-byte")
	b.ReportMetric(float64(first[len(first)*95/100].Microseconds())/1000, "ms-p95")
	b.ReportMetric(float64(used.Microseconds())/1000/float64(len(first)), "cpu-ms/page")
	b.ReportMetric(float64(sent)/1000, "kB")
}

var assetLinks = regexp.MustCompile(`(?:src|href)="\./(assets/[^"]+)"`)

// benchmarkWeight sums up what a browser loads for its first page.
func (u *ui) benchmarkWeight(b *testing.B) {
	for b.Loop() {
		jobs := u.get(b, "/jobs", "")
		page, assets := len(jobs.body), 0
		for _, m := range assetLinks.FindAllStringSubmatch(unzip(b, jobs.body), -1) {
			assets += len(u.get(b, "/"+m[1], "").body)
		}
		b.ReportMetric(float64(page)/1000, "page-kB")
		b.ReportMetric(float64(assets)/1000, "assets-kB")
	}
}

// stream opens the stream of changes, and calls changed for each message that says what has
// changed.
func (u *ui) stream(b *testing.B, changed func(live string)) (stop func()) {
	r, err := http.NewRequestWithContext(b.Context(), http.MethodGet, u.url+"/live", nil)
	if err != nil {
		b.Fatal(err)
	}
	w, err := u.http.Do(r)
	if err != nil || w.StatusCode != http.StatusOK {
		b.Fatalf("%+v, %v", w, err)
	}
	var reading sync.WaitGroup
	reading.Go(func() {
		var live string
		for lines := bufio.NewScanner(w.Body); lines.Scan(); {
			if id, ok := strings.CutPrefix(lines.Text(), "id: "); ok {
				live = id
			}
			if strings.HasPrefix(lines.Text(), "event: touched") {
				changed(live)
			}
		}
	})
	return func() { w.Body.Close(); reading.Wait() }
}

// benchmarkOpen measures what open pages cost when nothing happens: memory, and subscriptions.
func (u *ui) benchmarkOpen(b *testing.B, broker *natstest.Server) {
	const pages = 400
	for b.Loop() {
		before, subscriptions := u.resident(b), broker.NumSubscriptions()
		var stops []func()
		for range pages {
			stops = append(stops, u.stream(b, func(string) {}))
		}
		b.ReportMetric(float64(u.resident(b)-before)/pages, "kB/page")
		b.ReportMetric(float64(broker.NumSubscriptions()-subscriptions), "subscriptions")
		for _, stop := range stops {
			stop()
		}
	}
}

// benchmarkBusy measures open pages while slots run. Each browser asks for the parts of its page
// when something has changed, at most every second, as static/app.js does.
func (f *benchFleet) benchmarkBusy(b *testing.B, u *ui) {
	const lasts, settle = 30 * time.Second, 5 * time.Second
	paths := []string{"/", "/jobs", "/jobs/" + benchName(7), "/activity"}
	var asked, failed atomic.Int64
	for i := range benchBrowsers {
		due := make(chan string, 1)
		stop := u.stream(b, func(live string) {
			select {
			case due <- live:
			default:
			}
		})
		b.Cleanup(stop)
		path := paths[i%len(paths)]
		go func() {
			for {
				var live string
				select {
				case <-b.Context().Done():
					return
				case live = <-due:
				}
				if asked.Add(1); u.get(b, path, live).status != http.StatusOK {
					failed.Add(1)
				}
				time.Sleep(time.Second)
			}
		}()
	}
	slots := f.work(b)
	for b.Loop() {
		time.Sleep(settle)
		before, count, requests, began := u.cpu(b), slots.Load(), asked.Load(), time.Now()
		time.Sleep(lasts)
		took := time.Since(began).Seconds()
		b.ReportMetric((u.cpu(b)-before).Seconds()/took, "cores")
		b.ReportMetric(float64(slots.Load()-count)/took, "slots/s")
		b.ReportMetric(float64(asked.Load()-requests)/took, "requests/s")
		b.ReportMetric(float64(failed.Load()), "failed")
		b.ReportMetric(float64(subscriptionsOf(b, f.broker.Server, "cronce ui")), "subscriptions")
	}
}

// work records slots and announces them as workers do, and counts them.
func (f *benchFleet) work(b *testing.B) *atomic.Int64 {
	var n atomic.Int64
	go func() {
		tick := time.NewTicker(time.Second / benchSlots)
		defer tick.Stop()
		for {
			select {
			case <-b.Context().Done():
				return
			case <-tick.C:
			}
			i := int(n.Add(1))
			r := benchRecord(i, time.Now().UTC())
			r.Slot = job.Slot{Job: benchName(i), Token: fmt.Sprint("busy-", i)}
			f.store.Ledger().Send(b.Context(), r, 0, func(uint64, error) {})
			_ = f.store.EmitAndFlush(job.Event{V: 1, Kind: job.EventSucceeded, Node: r.Node, ID: r.Slot.ID(), Job: r.Slot.Job, Time: time.Now()})
		}
	}()
	return &n
}

// subscriptionsOf counts the subscriptions of the connections whose name begins with a prefix.
func subscriptionsOf(b *testing.B, s *server.Server, name string) (n int) {
	b.Helper()
	z, err := s.Connz(&server.ConnzOptions{Subscriptions: true})
	if err != nil {
		b.Fatal(err)
	}
	for _, c := range z.Conns {
		b.Log(c.Name, c.Subs)
		if strings.HasPrefix(c.Name, name) {
			n += len(c.Subs)
		}
	}
	return n
}

func unzip(b *testing.B, data []byte) string {
	b.Helper()
	z, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		b.Fatal(err)
	}
	plain, err := io.ReadAll(z)
	if err != nil {
		b.Fatal(err)
	}
	return string(plain)
}
