package doctor

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/cronce-io/cronce/internal/broker/layout"
	"github.com/cronce-io/cronce/internal/broker/space"
	"github.com/cronce-io/cronce/internal/core"
	"github.com/cronce-io/cronce/internal/core/exchange"
	"github.com/cronce-io/cronce/internal/core/plans"
	"github.com/cronce-io/cronce/job"
	"github.com/cronce-io/cronce/kv"
)

var now = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

// healthy is a fleet of two on a cluster of three, in which nothing is wrong.
func healthy() Facts {
	streams := map[string]*jetstream.StreamInfo{}
	for _, name := range layout.Streams("cronce") {
		streams[name] = &jetstream.StreamInfo{
			Config: jetstream.StreamConfig{Name: name, Replicas: 3, MaxBytes: 1000, MaxMsgs: -1},
			State:  jetstream.StreamState{Bytes: 100, Msgs: 10},
			Cluster: &jetstream.ClusterInfo{Leader: "n1", Replicas: []*jetstream.PeerInfo{
				{Name: "n2", Current: true}, {Name: "n3", Current: true},
			}},
		}
	}
	f := Facts{
		Namespace: "cronce", Now: now, Local: now.Add(time.Second),
		Survey: space.Survey{
			Server: "n1", Version: "2.15.2", Cluster: "c", Schedules: true, Streams: streams,
			Settings: job.Settings{}.WithDefaults(),
			Queues: []space.Queue{{
				Name: "default", Waiting: 2,
				Slots:  &jetstream.ConsumerInfo{NumWaiting: 2, NumPending: 1, Config: jetstream.ConsumerConfig{MaxAckPending: 1000}},
				Timers: &jetstream.ConsumerInfo{NumWaiting: 2, Config: jetstream.ConsumerConfig{MaxAckPending: 1000}},
			}},
			Account: &jetstream.AccountInfo{Tier: jetstream.Tier{Store: 1 << 40, Limits: jetstream.AccountLimits{MaxStore: -1}}},
		},
		Watermark: exchange.Watermark{Time: now.Add(-time.Second), Revision: 7}, RegistryRevision: 7,
		Jobs: []plans.Entry{{
			Definition: plans.Definition{Job: job.Job{Name: "report", Schedule: "@hourly", Timeout: time.Minute}},
			Revision:   7, Time: now.Add(-time.Hour),
		}},
		Ended: map[job.Slot]time.Time{},
		Sweep: kv.SweepEnd{SweepEnd: exchange.SweepEnd{Node: "w1"}, Time: now.Add(-20 * time.Second)},
	}
	for _, name := range []string{"n1", "n2", "n3"} {
		f.Monitors = append(f.Monitors, Monitor{Name: name, Version: "2.15.2", JetStream: true, SyncAlways: true})
	}
	for _, name := range []string{"w1", "w2"} {
		f.Nodes = append(f.Nodes, exchange.NodeEvent{Name: name, Time: now.Add(-time.Second), Node: exchange.Node{
			Name: name, State: exchange.NodeAlive, Started: now.Add(-time.Hour), Lease: 20 * time.Second, Producer: true, Worker: true,
			Queues: []string{"default"}, ClockOffset: 3 * time.Millisecond, ClockError: time.Millisecond, Tzdata: "2025c",
		}})
	}
	f.Handlers = map[string]exchange.Handlers{"w1": {Node: "w1", Jobs: []string{"report"}}, "w2": {Node: "w2", Jobs: []string{"report"}}}
	return f
}

func (f *Facts) eachNode(edit func(i int, n *exchange.NodeEvent)) {
	for i := range f.Nodes {
		edit(i, &f.Nodes[i])
	}
}

func (f *Facts) stream(name string) *jetstream.StreamInfo { return f.Survey.Streams[name] }

func (f *Facts) job(name string, edit func(*plans.Entry)) {
	e := f.Jobs[0]
	e.Job.Name = name
	edit(&e)
	f.Jobs = append(f.Jobs, e)
}

var pending = &jetstream.ConsumerInfo{NumPending: 7}

// consumer adds the consumer of messages that start the job, or the consumer of alerts if name is empty.
func (f *Facts) consumer(name string, info *jetstream.ConsumerInfo) {
	f.NodeConsumers = append(f.NodeConsumers, space.NodeConsumer{Job: name, Stream: "ORDERS", Info: info})
	f.Jobs[0].Job.OnFailure = &job.Alert{}
}

// lease sets the stored lease, and that of every node.
func (f *Facts) lease(d time.Duration) {
	f.Survey.Settings.Lease = d
	f.eachNode(func(_ int, n *exchange.NodeEvent) { n.Node.Lease = d })
}

func slotAt(text string) job.Slot {
	s, err := job.ParseSlotID("report:" + text)
	if err != nil {
		panic(err)
	}
	return s
}

func (f *Facts) open(state job.State, node string, age time.Duration) {
	f.Open = append(f.Open, kv.LedgerEntry{
		Record: job.Record{Slot: slotAt("2026-11-21T07:00:00Z"), State: state, Node: node, RetryAt: now.Add(10*time.Second - age)},
		Time:   now.Add(-age),
	})
}

func TestOfAHealthyFleetNothingIsSaid(t *testing.T) {
	t.Parallel()
	if found := Check(healthy()); len(found) > 0 {
		t.Errorf("%+v", found)
	}
}

// Heartbeats are not stored either, so starting a node would not help.
func TestFullStorageIsFoundInPlaceOfDeadNodes(t *testing.T) {
	t.Parallel()
	f := healthy()
	f.Full = "/data: 9 bytes are stored, of 8"
	f.eachNode(func(_ int, n *exchange.NodeEvent) { n.Time = f.Now.Add(-time.Hour) })
	found := Check(f)
	if len(found) != 1 || found[0].Check != "full" || found[0].Level != Error || !strings.Contains(found[0].What, f.Full) || found[0].Mend == "" {
		t.Errorf("%+v", found)
	}
}

// Each case breaks one thing, or nearly does. want is the only finding, as "check level about", or empty
// for none.
func TestEachFinding(t *testing.T) {
	t.Parallel()
	lock := func(f *Facts, waiting int) {
		l := core.Lock{Job: "report", Holders: []core.LockSlot{{Slot: slotAt("2026-11-21T07:00:00Z"), Since: now.Add(-5 * time.Hour)}}}
		l.Waiting = waiting > 0
		f.Locks = []core.Lock{l}
	}
	for name, test := range map[string]struct {
		edit func(f *Facts)
		want string
		says string
	}{
		"a stream is missing":             {func(f *Facts) { f.Survey.Missing = []string{"stream cronce_events"} }, "missing error stream cronce_events", "cronce setup"},
		"no settings are stored":          {func(f *Facts) { f.Survey.SettingsErr = job.ErrNotFound }, "settings error ", "cronce setup"},
		"settings of a newer version":     {func(f *Facts) { f.Survey.SettingsErr = job.ErrVersion }, "settings error ", "newer version of cronce"},
		"settings that break the rules":   {func(f *Facts) { f.Survey.SettingsErr = job.ErrInvalid }, "settings error ", "nats kv del cronce_state settings"},
		"no timers where there could be":  {func(f *Facts) { f.Survey.NoTimers = true }, "timers warning stream cronce_timers", "cronce setup"},
		"no timers where there cannot be": {func(f *Facts) { f.Survey.NoTimers, f.Survey.Schedules = true, false }, "timers note ", "2.12"},
		"a difference that setup mends": {func(f *Facts) {
			f.Survey.Differences = []layout.Difference{{Where: "bucket cronce_jobs", Field: "max age", Found: "1h", Want: "0s"}}
		}, "layout error bucket cronce_jobs", "max age 1h, not 0s"},
		"a difference that it cannot": {func(f *Facts) {
			f.Survey.Differences = []layout.Difference{{Where: "queue q", Field: "ack policy", Found: "none", Want: "explicit", Remove: "nats consumer rm cronce_slots q"}}
		}, "layout error queue q", "nats consumer rm cronce_slots q"},
		"a queue without a consumer": {func(f *Facts) { f.Survey.Queues[0].Slots = nil }, "consumer error queue default", "setup --queue default"},
		"a queue without a consumer, whose workers have just started": {func(f *Facts) {
			f.Survey.Queues[0].Slots = nil
			f.eachNode(func(_ int, n *exchange.NodeEvent) { n.Node.Started = now.Add(-5 * time.Second) })
		}, "", ""},
		"a handler for a job that is not in the registry": {func(f *Facts) {
			f.Handlers["w1"] = exchange.Handlers{Node: "w1", Jobs: []string{"report", "extra"}}
		}, "unregistered warning job extra", "job apply -f FILE"},
		"a handler of a node that has just started": {func(f *Facts) {
			f.Handlers["w1"] = exchange.Handlers{Node: "w1", Jobs: []string{"report", "extra"}}
			f.eachNode(func(_ int, n *exchange.NodeEvent) { n.Node.Started = now.Add(-5 * time.Second) })
		}, "", ""},
		"a fleet of the same name in a connected domain": {func(f *Facts) { f.Strangers = []string{"x"} }, "domains error node x", "--namespace NAME"},
		"a consumer of others": {func(f *Facts) {
			f.Survey.Foreign = []space.Foreign{{Stream: "KV_cronce_jobs", Consumer: "x", What: "stays"}}
		}, "foreign warning consumer x of bucket cronce_jobs", "nats consumer rm KV_cronce_jobs x"},
		"a stream of others": {func(f *Facts) {
			f.Survey.Foreign = []space.Foreign{{Stream: "copy", What: "copies"}}
		}, "foreign warning stream copy", "nats stream edit copy"},
		"a node with another lease":    {func(f *Facts) { f.Nodes[1].Node.Lease = 6 * time.Second }, "settings warning node w2 (lease 6s)", "the stored lease is 20s"},
		"a sweep that is late":         {func(f *Facts) { f.Sweep.Time = now.Add(-5 * time.Minute) }, "sweep warning sweep", "5m0s ago"},
		"a sweep before a long outage": {func(f *Facts) { f.Sweep.Time = now.Add(-3 * time.Hour) }, "sweep warning sweep", "3h0m0s ago"},
		"a sweep just in time":         {func(f *Facts) { f.Sweep.Time = now.Add(-3 * time.Minute) }, "", ""},
		"no sweep":                     {func(f *Facts) { f.Sweep, f.SweepErr = kv.SweepEnd{}, job.ErrNotFound }, "sweep warning sweep", "no sweep for lost slots"},
		"no sweep yet": {func(f *Facts) {
			f.Sweep, f.SweepErr = kv.SweepEnd{}, job.ErrNotFound
			f.eachNode(func(_ int, n *exchange.NodeEvent) { n.Node.Started = now.Add(-time.Minute) })
		}, "", ""},
		"a sweep that passes over things": {func(f *Facts) {
			f.Sweep.Skip("record of report:@k", job.ErrInvalid)
		}, "sweep warning sweep", "record of report:@k"},
		"a ledger that went back": {func(f *Facts) {
			f.Sweep.Rewound = exchange.Rewound{Time: now.Add(-time.Hour), Lost: exchange.LedgerMark{Slot: "report:@k", Revision: 70}, Found: 3}
		}, "rewound warning bucket cronce_ledger", "revision 70, was at revision 3"},
		"a ledger that went back long ago":   {func(f *Facts) { f.Sweep.Rewound = exchange.Rewound{Time: now.Add(-25 * time.Hour)} }, "", ""},
		"a message that no program can read": {func(f *Facts) { f.Unread = Unread{1, []string{"message 7 on cronce.slot.q.j: invalid"}} }, "unread warning stream cronce_slots", "message 7"},
		"a bucket that allows roll-up": {func(f *Facts) {
			f.Survey.Differences = []layout.Difference{{Where: "bucket cronce_jobs", Field: "roll-up and purge", Found: "allowed", Want: "denied", Tolerated: true}}
		}, "rollup warning ", "Nats-Rollup"},
		"a registry that denies batches": {func(f *Facts) {
			f.Survey.Differences = []layout.Difference{{Where: "bucket cronce_jobs", Field: "atomic batches", Found: "denied", Want: "allowed", Tolerated: true}}
		}, "batches note ", "new jobs wait for one sync each"},
		"events that do not keep orders": {func(f *Facts) {
			f.Survey.Differences = []layout.Difference{{Where: "stream cronce_events", Field: "kept orders", Found: "", Want: "cronce.event.ordered.*", Tolerated: true}}
		}, "orders note ", "which operator paused"},
		"storage in memory": {func(f *Facts) {
			f.Survey.Differences = []layout.Difference{{Where: "bucket cronce_ledger", Field: "storage", Found: "Memory", Want: "File", Remove: "nats kv del cronce_ledger"}}
		}, "storage error bucket cronce_ledger", "lost when it restarts"},
		"writes that are persisted later": {func(f *Facts) {
			f.Survey.Differences = []layout.Difference{{Where: "bucket cronce_ledger", Field: "persist mode", Found: "async", Want: "default", Remove: "nats kv del cronce_ledger"}}
		}, "storage error bucket cronce_ledger", "persist mode"},

		"stored once in a cluster": {func(f *Facts) { f.stream("cronce_slots").Config.Replicas = 1 }, "replicas warning ", "cronce_slots"},
		"a single server": {func(f *Facts) {
			f.Survey.Cluster = ""
			for _, s := range f.Survey.Streams {
				s.Config.Replicas, s.Cluster = 1, nil
			}
		}, "replicas note ", "single server"},
		"two replicas":              {func(f *Facts) { f.stream("cronce_slots").Config.Replicas = 2 }, "replicas warning ", "no more failures"},
		"a replica that is offline": {func(f *Facts) { f.stream("cronce_slots").Cluster.Replicas[1].Offline = true }, "replica warning server n3", "cronce_slots"},
		"a replica whose server was removed": {func(f *Facts) {
			f.stream("cronce_slots").Cluster.Replicas = f.stream("cronce_slots").Cluster.Replicas[:1]
		}, "replica warning ", "fewer copies than configured exist of cronce_slots (2 of 3)"},
		"replicas of a cluster on a single server": {func(f *Facts) {
			f.Survey.Cluster = ""
			for _, s := range f.Survey.Streams {
				s.Config.Replicas, s.Cluster = 3, nil
			}
			f.Survey.Differences = []layout.Difference{{Where: "bucket cronce_jobs", Field: layout.FieldReplicas, Found: "1", Want: "3"}}
		}, "layout error bucket cronce_jobs", "cronce setup --replicas 1"},
		"a replica that lags":  {func(f *Facts) { f.stream("cronce_slots").Cluster.Replicas[0].Current = false }, "replica warning server n2", ""},
		"a stream nearly full": {func(f *Facts) { f.stream("cronce_slots").State.Bytes = 800 }, "limit warning stream cronce_slots", "800 of at most 1000"},
		"a stream full":        {func(f *Facts) { f.stream("cronce_slots").State.Bytes = 950 }, "limit error stream cronce_slots", ""},
		"a stream not so full": {func(f *Facts) { f.stream("cronce_slots").State.Bytes = 799 }, "", ""},
		"a stream with many messages": {func(f *Facts) {
			f.stream("cronce_slots").Config.MaxMsgs, f.stream("cronce_slots").State.Msgs = 10, 9
		}, "limit warning stream cronce_slots", "messages"},
		"a stream that accepts small messages only": {func(f *Facts) {
			f.Survey.Differences = []layout.Difference{{Where: "bucket cronce_ledger", Field: layout.FieldMessageSize, Found: "300", Want: "at least 524288", Tolerated: true}}
		}, "layout error bucket cronce_ledger", "limit of a message's size of 300"},
		"a stream with as many consumers as it may have": {func(f *Facts) {
			f.stream("KV_cronce_jobs").Config.MaxConsumers, f.stream("KV_cronce_jobs").State.Consumers = 5, 5
		}, "limit warning stream KV_cronce_jobs", "5 of at most 5 consumers"},
		"an account whose streams may have few consumers": {func(f *Facts) {
			f.stream("KV_cronce_jobs").State.Consumers, f.Survey.Account.Limits.MaxConsumers = 9, 10
		}, "limit warning stream KV_cronce_jobs", "9 of at most 10 consumers"},
		"an account nearly full":      {func(f *Facts) { f.Survey.Account.Store, f.Survey.Account.Limits.MaxStore = 90, 100 }, "limit warning the account", ""},
		"an account that is not told": {func(f *Facts) { f.Survey.Account = nil }, "", ""},
		"a tier nearly full": {func(f *Facts) {
			f.Survey.Account.Tiers = map[string]jetstream.Tier{"R3": {Store: 99, Limits: jetstream.AccountLimits{MaxStore: 100}}}
		}, "limit error the account, tier R3", ""},

		"a server that does not sync": {func(f *Facts) { f.Monitors[1].SyncAlways = false }, "sync warning server n2", "every 2m0s"},
		"a server that syncs often": {func(f *Facts) {
			f.Monitors[1].SyncAlways, f.Monitors[1].SyncInterval = false, 10*time.Second
		}, "sync warning server n2", "every 10s"},
		"a server without JetStream":  {func(f *Facts) { f.Monitors = append(f.Monitors, Monitor{Name: "gate", Version: "2.15.2"}) }, "", ""},
		"servers that were not asked": {func(f *Facts) { f.Monitors = f.Monitors[:1] }, "sync note server n2, n3", "--monitor"},
		"an embedded server": {func(f *Facts) {
			f.Monitors = nil
			for _, s := range f.Survey.Streams {
				s.Cluster = &jetstream.ClusterInfo{Leader: "cronce-X", Replicas: []*jetstream.PeerInfo{
					{Name: "cronce-Y", Current: true}, {Name: "cronce-Z", Current: true},
				}}
			}
		}, "", ""},
		"a server with known faults":           {func(f *Facts) { f.Survey.Version, f.Monitors[0].Version = "2.12.1", "2.12.1" }, "version warning server n1", "2.12.1"},
		"a monitored server with known faults": {func(f *Facts) { f.Monitors[2].Version = "v2.13.9" }, "version warning server n3", "2.13.9"},
		"the oldest version without them":      {func(f *Facts) { f.Monitors[2].Version = "2.14.0" }, "", ""},

		"a retention within the horizon":  {func(f *Facts) { f.Survey.Settings.Retention = 24 * time.Hour }, "retention error ", "--retention 48h"},
		"the least retention":             {func(f *Facts) { f.Survey.Settings.Retention = 25 * time.Hour }, "", ""},
		"a short lease on a cluster":      {func(f *Facts) { f.lease(15 * time.Second) }, "lease warning ", "--lease 20s"},
		"the shortest lease on a cluster": {func(f *Facts) { f.lease(16 * time.Second) }, "", ""},
		"workers that stood still": {func(f *Facts) {
			f.Refused, f.Latest = 3, job.Event{Node: "w1", ID: "report:2026-11-21T07:00:00Z"}
		}, "lease warning ", "report:2026-11-21T07:00:00Z on node w1"},
		"clocks that are known badly":       {func(f *Facts) { f.Nodes[0].Node.ClockError = 31 * time.Second }, "duplicates warning ", "--duplicates 4m"},
		"clocks that are known well enough": {func(f *Facts) { f.Nodes[0].Node.ClockError = 30 * time.Second }, "", ""},

		"a clock that is off":          {func(f *Facts) { f.Nodes[1].Node.ClockOffset = -1100 * time.Millisecond }, "clock warning node w2", "1.1s apart"},
		"a clock that is nearly right": {func(f *Facts) { f.Nodes[1].Node.ClockOffset = time.Second }, "", ""},
		"a clock that is wrong":        {func(f *Facts) { f.Nodes[1].Node.ClockOffset = 2 * time.Hour }, "clock error node w2", "does not produce"},
		"a worker's clock that is wrong": {func(f *Facts) {
			f.Nodes[1].Node.ClockOffset, f.Nodes[1].Node.Producer = 2*time.Hour, false
		}, "clock warning node w2", "too old wait there"},
		"a broker whose clock is wrong": {func(f *Facts) { f.Local = now.Add(-61 * time.Minute) }, "clock warning broker", "this machine's"},
		"a silent node whose clock is wrong": {func(f *Facts) {
			f.Nodes[1].Node.ClockOffset, f.Nodes[1].Time = 2*time.Hour, now.Add(-time.Minute)
		}, "", ""},
		"other time zone data":                   {func(f *Facts) { f.Nodes[1].Node.Tzdata = "2024a" }, "tzdata warning ", "2024a on w2; 2025c on w1"},
		"other time zone data of a stopped node": {func(f *Facts) { f.Nodes[1].Node.Tzdata, f.Nodes[1].Node.State = "2024a", exchange.NodeStopped }, "", ""},
		"a node's record that cannot be read": {func(f *Facts) {
			f.Nodes = append(f.Nodes, exchange.NodeEvent{Name: "w3", Err: job.ErrInvalid})
		}, "node warning node w3", "doctor --remove-unreadable"},
		"a lock that cannot be read": {func(f *Facts) {
			f.Unreadable = append(f.Unreadable, &kv.UnreadableError{Bucket: "cronce_state", Key: "lock.report", Revision: 17, Err: job.ErrInvalid})
		}, "unreadable error job report", "cronce doctor --remove-unreadable"},
		"a lock of a newer version": {func(f *Facts) {
			f.Unreadable = append(f.Unreadable, &kv.UnreadableError{Bucket: "cronce_state", Key: "lock.report", Revision: 17, Err: job.ErrVersion})
		}, "unreadable error job report", "--remove-unreadable --force"},
		"records that cannot be read": {func(f *Facts) {
			for _, key := range []string{"report.20261121T070000Z", "report.t.k"} {
				f.Unreadable = append(f.Unreadable, &kv.UnreadableError{Bucket: "cronce_ledger", Key: key, Revision: 17, Err: job.ErrInvalid})
			}
		}, "unreadable error job report", "2 of its records cannot be read, the first: key report.20261121T070000Z of bucket cronce_ledger"},
		"a record of no slot": {func(f *Facts) {
			f.Unreadable = append(f.Unreadable, &kv.UnreadableError{Bucket: "cronce_ledger", Key: "no=slot", Revision: 17, Err: job.ErrInvalid})
		}, "unreadable error bucket cronce_ledger", "no=slot"},
		"no producer": {func(f *Facts) { f.eachNode(func(_ int, n *exchange.NodeEvent) { n.Node.Producer = false }) }, "producer error ", "cronce run"},
		"no producer, and no job": {func(f *Facts) {
			f.eachNode(func(_ int, n *exchange.NodeEvent) { n.Node.Producer = false })
			f.Jobs, f.Handlers = nil, nil
		}, "", ""},

		"a queue of jobs without workers": {func(f *Facts) {
			f.job("mail", func(e *plans.Entry) { e.Job.Queue = "mail" })
		}, "worker warning queue mail", "its jobs: mail"},
		"a queue of a paused job without workers": {func(f *Facts) {
			f.job("mail", func(e *plans.Entry) { e.Job.Queue, e.Paused = "mail", true })
		}, "", ""},
		"a queue with slots and without workers": {func(f *Facts) {
			f.job("mail", func(e *plans.Entry) { e.Job.Queue, e.Paused = "mail", true })
			f.Survey.Queues = append(f.Survey.Queues, space.Queue{Name: "mail", Waiting: 3})
		}, "worker warning queue mail", "3 slots wait, and no live node works on it"},
		"a queue with slots and without jobs": {func(f *Facts) {
			f.Survey.Queues = append(f.Survey.Queues, space.Queue{Name: "mail", Waiting: 3})
		}, "worker warning queue mail", "no job uses it any more"},
		"fired triggers that its workers do not take": {func(f *Facts) {
			f.Survey.Queues[0].Fired, f.Survey.Queues[0].Timers = 4, nil
		}, "fired warning queue " + healthy().Survey.Queues[0].Name, "no worker of the queue takes them"},
		"a queue with fired triggers and without workers": {func(f *Facts) {
			f.Survey.Queues = append(f.Survey.Queues, space.Queue{Name: "mail", Fired: 4})
		}, "fired warning queue mail", "4 triggered runs"},
		"a queue that no job uses": {func(f *Facts) {
			f.Survey.Queues = append(f.Survey.Queues, space.Queue{Name: "old", Slots: &jetstream.ConsumerInfo{}})
		}, "unused note queue old", "nats consumer rm cronce_slots old"},
		"a queue that only a paused job uses": {func(f *Facts) {
			f.job("mail", func(e *plans.Entry) { e.Job.Queue, e.Paused = "mail", true })
			f.Survey.Queues = append(f.Survey.Queues, space.Queue{Name: "mail", Slots: &jetstream.ConsumerInfo{}})
		}, "", ""},
		"workers that ask for nothing": {func(f *Facts) { f.Unasked = []string{"default"} }, "unasked warning queue default", "w1, w2"},
		"a queue that is paused on the server": {func(f *Facts) {
			f.Survey.Queues[0].Timers = &jetstream.ConsumerInfo{Stream: "cronce_timers", Name: "default", NumWaiting: 1, Paused: true, PauseRemaining: time.Hour}
		}, "paused warning queue default", "nats consumer resume cronce_timers default"},
		"alerts that are paused on the server": {func(f *Facts) {
			f.consumer("", &jetstream.ConsumerInfo{Stream: "cronce_events", Name: "alerts", Paused: true})
		}, "paused warning alerts", "nats consumer resume cronce_events alerts"},
		"messages that are paused on the server": {func(f *Facts) {
			f.consumer("report", &jetstream.ConsumerInfo{Stream: "ORDERS", Name: "cronce_cronce=report", Paused: true})
		}, "paused warning job report", "nats consumer resume ORDERS cronce_cronce=report"},
		"messages that hold their places":       {func(f *Facts) { f.Survey.Queues[0].Slots.NumAckPending = 800 }, "ack_pending warning queue default", "800 of at most 1000"},
		"timers that hold their places":         {func(f *Facts) { f.Survey.Queues[0].Timers.NumAckPending = 900 }, "ack_pending warning queue default", ""},
		"fewer messages that hold their places": {func(f *Facts) { f.Survey.Queues[0].Slots.NumAckPending = 799 }, "", ""},

		"a broken definition": {func(f *Facts) {
			f.Broken = []*plans.EntryError{{Name: "bad", Err: job.ErrInvalid}}
		}, "broken error job bad", "job rm bad"},
		"a plan that cannot be computed": {func(f *Facts) {
			f.job("bad", func(e *plans.Entry) { e.Job.Schedule = "61 * * * *" })
		}, "broken error job bad", "job rm bad"},
		"a plan of the future": {func(f *Facts) { f.Jobs[0].Time = now.Add(2 * time.Hour) }, "future warning job report", "apply it again"},
		"a webhook that was revoked": {func(f *Facts) {
			f.job("mail", func(e *plans.Entry) { e.Job.OnFailure = &job.Alert{} })
			f.Handlers["w1"] = exchange.Handlers{Node: "w1", Jobs: []string{"report", "mail"}}
			event := exchange.NewUndeliverable(job.Event{Job: "mail", ID: "mail:@k", Alert: job.Failed}, errors.New("status 404 Not Found"))
			event.Time = f.Now.Add(-time.Minute)
			f.Undeliverable = map[string]job.Event{"mail": event}
			f.consumer("", &jetstream.ConsumerInfo{Stream: "cronce_events", Name: "alerts"})
		}, "alerts warning job mail", "job show mail"},
		"a job without handler": {func(f *Facts) { f.job("mail", func(*plans.Entry) {}) }, "handler warning job mail", "job pause mail"},
		"a job after others, without handler": {func(f *Facts) {
			f.job("mail", func(e *plans.Entry) { e.Job.Schedule, e.Job.After = "", []string{"report"} })
		}, "handler warning job mail", "job pause mail"},
		"a job on demand, without handler": {func(f *Facts) {
			f.job("mail", func(e *plans.Entry) { e.Job.Schedule, e.Job.Timezone = job.OnDemand, "" })
		}, "handler warning job mail", "job pause mail"},
		"a job that is over, without handler": {func(f *Facts) {
			f.job("mail", func(e *plans.Entry) { e.Job.Schedule = "@at 2026-01-01T00:00:00Z" })
		}, "", ""},

		"no watermark": {func(f *Facts) { f.WatermarkErr = job.ErrNotFound }, "watermark error watermark", "there is none"},
		"no watermark yet": {func(f *Facts) {
			f.WatermarkErr = job.ErrNotFound
			f.eachNode(func(_ int, n *exchange.NodeEvent) { n.Node.Started = now.Add(-50 * time.Second) })
		}, "", ""},
		"a watermark that cannot be read": {func(f *Facts) { f.WatermarkErr = job.ErrInvalid }, "watermark error watermark", "--reset-watermark"},
		"a watermark of a newer version":  {func(f *Facts) { f.WatermarkErr = job.ErrVersion }, "watermark error watermark", "one version"},
		"a watermark ahead":               {func(f *Facts) { f.Watermark.Time = now.AddDate(10, 0, 0) }, "watermark error watermark", "--reset-watermark"},
		"a watermark a little ahead":      {func(f *Facts) { f.Watermark.Time = now.Add(5 * time.Second) }, "", ""},
		"a watermark that knows too much": {func(f *Facts) { f.Watermark.Revision = 8 }, "watermark error watermark", "revision 8"},
		"a watermark that stands still":   {func(f *Facts) { f.Watermark.Time = now.Add(-61 * time.Second) }, "watermark error watermark", "behind"},
		"a watermark that stands still without jobs": {func(f *Facts) {
			f.Watermark.Time, f.Jobs, f.Handlers = now.Add(-time.Hour), nil, nil
		}, "", ""},

		"a slot on a dead node":               {func(f *Facts) { f.open(job.Running, "gone", 161*time.Second) }, "stuck warning slot report:2026-11-21T07:00:00Z", "slot explain"},
		"a slot on a node that has just died": {func(f *Facts) { f.open(job.Running, "gone", 159*time.Second) }, "", ""},
		"a slot on a node that was fenced long ago": {func(f *Facts) {
			f.open(job.Running, "w2", time.Hour)
			f.Nodes[1].Node.State, f.Nodes[1].Time = exchange.NodeFenced, now.Add(-10*time.Minute)
		}, "stuck warning slot report:2026-11-21T07:00:00Z", "dead"},
		"a slot that runs too long":     {func(f *Facts) { f.open(job.Running, "w1", 181*time.Second) }, "stuck warning slot report:2026-11-21T07:00:00Z", "timeout"},
		"a slot that runs":              {func(f *Facts) { f.open(job.Running, "w1", 179*time.Second) }, "", ""},
		"a slot whose retry is overdue": {func(f *Facts) { f.open(job.Retrying, "", 131*time.Second) }, "stuck warning slot report:2026-11-21T07:00:00Z", "next attempt"},
		"a slot whose retry is due":     {func(f *Facts) { f.open(job.Retrying, "", 129*time.Second) }, "", ""},
		"a slot whose shards run": {func(f *Facts) {
			f.open(job.Running, "gone", time.Hour)
			f.open(job.Running, "w1", time.Second)
			f.Open[1].Slot = f.Open[0].Slot.WithShard(1, 2)
		}, "", ""},

		"a lock of a slot that has ended": {func(f *Facts) {
			lock(f, 0)
			f.Ended[f.Locks[0].Holders[0].Slot] = now.Add(-time.Hour)
		}, "", ""},
		"a lock of such a slot for which others wait": {func(f *Facts) {
			lock(f, 2)
			f.Ended[f.Locks[0].Holders[0].Slot] = now.Add(-time.Hour)
		}, "lock warning job report", "slots wait for others which have ended"},
		"a lock of a slot that was lost before it began": {func(f *Facts) {
			lock(f, 2)
			f.Ended[f.Locks[0].Holders[0].Slot] = time.Time{}
		}, "lock warning job report", "slots wait for others which no worker has started"},
		"a lock of a slot that has just ended": {func(f *Facts) {
			lock(f, 2)
			f.Ended[f.Locks[0].Holders[0].Slot] = now.Add(-time.Minute)
		}, "", ""},
		"a lock that has seen the future": {func(f *Facts) {
			lock(f, 0)
			f.Locks[0].Newest = now.AddDate(10, 0, 0)
		}, "lock error job report", "lock.report"},
		"alerts without a request":      {func(f *Facts) { f.consumer("", pending); f.UnaskedConsumers = []int{0} }, "alerts warning alerts", "7 wait"},
		"alerts that a worker asks for": {func(f *Facts) { f.consumer("", pending) }, "", ""},
		"alerts that no job wants": {func(f *Facts) {
			f.consumer("", pending)
			f.UnaskedConsumers, f.Jobs[0].Job.OnFailure = []int{0}, nil
		}, "", ""},
		"alerts without a consumer":         {func(f *Facts) { f.consumer("", nil) }, "alerts warning alerts", "no consumer"},
		"alerts that are not delivered":     {func(f *Facts) { f.consumer("", &jetstream.ConsumerInfo{NumRedelivered: 3}) }, "alerts warning alerts", "3 could not be delivered"},
		"alerts of which nothing is said":   {func(f *Facts) { f.consumer("", nil); f.NodeConsumers[0].Err = job.ErrDenied }, "alerts note alerts", "login"},
		"messages without a request":        {func(f *Facts) { f.consumer("report", pending); f.UnaskedConsumers = []int{0} }, "intake warning job report", "7 messages of stream ORDERS"},
		"messages that a producer asks for": {func(f *Facts) { f.consumer("report", pending) }, "", ""},
		"messages for a paused job": {func(f *Facts) {
			f.consumer("report", pending)
			f.UnaskedConsumers, f.Jobs[0].Paused = []int{0}, true
		}, "", ""},
		"messages that come again":               {func(f *Facts) { f.consumer("report", &jetstream.ConsumerInfo{NumRedelivered: 3}) }, "intake warning job report", "again and again"},
		"messages without a consumer":            {func(f *Facts) { f.consumer("report", nil) }, "intake warning job report", "no producer takes the messages"},
		"messages of a stream that is not there": {func(f *Facts) { f.consumer("report", nil); f.NodeConsumers[0].Err = job.ErrNotFound }, "intake error job report", "ORDERS"},

		"a lock of a slot that runs": {func(f *Facts) { lock(f, 2) }, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := healthy()
			test.edit(&f)
			var got []string
			var text strings.Builder
			for _, x := range Check(f) {
				fmt.Fprintln(&text, x.Check, x.What, x.Why, x.Mend)
				if x.Check != "incomplete" {
					got = append(got, fmt.Sprintf("%s %s %s", x.Check, x.Level, x.About))
				}
				if x.Level != Note && (x.Why == "" || x.Mend == "") {
					t.Errorf("%s does not say why it matters, or what mends it: %+v", x.Check, x)
				}
			}
			var want []string
			if test.want != "" {
				want = []string{test.want}
			}
			if !slices.Equal(got, want) {
				t.Errorf("found %q, want %q", got, want)
			}
			if test.want != "" && !strings.Contains(text.String(), test.says) {
				t.Errorf("%q is not said in:\n%s", test.says, &text)
			}
		})
	}
}

func TestOfAnIncompleteNamespaceTheRestIsNotJudged(t *testing.T) {
	t.Parallel()
	f := healthy()
	f.Survey.Missing, f.Nodes = []string{"stream cronce_slots"}, nil
	found := Check(f)
	if len(found) != 2 || found[0].Check != "missing" || found[1].Check != "incomplete" {
		t.Errorf("%+v", found)
	}
}

func TestTheWorstComesFirst(t *testing.T) {
	t.Parallel()
	f := healthy()
	f.Monitors = nil                           // a note
	f.Nodes[1].Node.Tzdata = "2024a"           // a warning
	f.Watermark.Time = now.Add(24 * time.Hour) // an error
	var levels []Level
	for _, x := range Check(f) {
		levels = append(levels, x.Level)
	}
	if !slices.Equal(levels, []Level{Error, Warning, Note}) {
		t.Errorf("%v", levels)
	}
}

func TestCommandsNameTheNamespace(t *testing.T) {
	t.Parallel()
	f := healthy()
	f.Namespace, f.Survey.Missing = "other", []string{"bucket other_jobs"}
	if found := Check(f); !strings.Contains(found[0].Mend, "cronce setup --namespace other") {
		t.Errorf("%+v", found[0])
	}
}

func TestFewNamesTheFirst(t *testing.T) {
	t.Parallel()
	all := slices.Sorted(maps.Keys(map[string]bool{"a": true, "b": true, "c": true, "d": true, "e": true, "f": true, "g": true}))
	if got := few(all); got != "a, b, c, d, e and 2 more" {
		t.Error(got)
	}
}

// The broker's clock is two days ahead of the clocks of all nodes. The finding says what waits until one
// of them is corrected.
func TestBrokerClockThatNoNodeBelievesIsAnError(t *testing.T) {
	t.Parallel()
	f := healthy()
	f.eachNode(func(_ int, n *exchange.NodeEvent) { n.Node.ClockOffset = 48 * time.Hour })
	for _, found := range Check(f) {
		if found.Check == "clock" && found.About == "broker" {
			if found.Level != Error || !strings.Contains(found.Why, "too old wait there") || !strings.Contains(found.What, "2 of 2 nodes") {
				t.Errorf("it says %+v", found)
			}
			return
		}
	}
	t.Errorf("nothing is said of the broker's clock: %+v", Check(f))
}

// A worker without a free place asks for nothing, and its last heartbeat may be older than the slot
// that it runs. So the ledger counts too.
func TestIdleWorkersAreThoseThatRunNothing(t *testing.T) {
	t.Parallel()
	running := func(node, queue string) func(*Facts) {
		return func(f *Facts) {
			f.Open = []kv.LedgerEntry{{Record: job.Record{Slot: slotAt("2026-11-21T12:00:00Z"), State: job.Running, Node: node, Queue: queue}}}
		}
	}
	for name, c := range map[string]struct {
		edit func(*Facts)
		want bool
	}{
		"messages without a request":  {func(*Facts) {}, true},
		"messages that were returned": {func(f *Facts) { f.Survey.Queues[0].Slots = &jetstream.ConsumerInfo{NumAckPending: 1} }, true},
		"fired timers that were returned": {func(f *Facts) {
			f.Survey.Queues[0].Slots, f.Survey.Queues[0].Timers = nil, &jetstream.ConsumerInfo{NumAckPending: 1}
		}, true},
		"no messages":                              {func(f *Facts) { f.Survey.Queues[0].Slots.NumPending = 0 }, false},
		"a request":                                {func(f *Facts) { f.Survey.Queues[0].Slots.NumWaiting = 1 }, false},
		"a worker that runs slots, it says":        {func(f *Facts) { f.Nodes[1].Node.Running = 1 }, false},
		"a worker that runs a slot of the queue":   {running("w2", "default"), false},
		"a worker that runs a slot of another":     {running("w2", "mail"), true},
		"a node that is not a worker of the queue": {running("other", "default"), true},
	} {
		f := healthy()
		f.Survey.Queues[0].Slots.NumWaiting = 0
		c.edit(&f)
		if got := f.idle(f.Survey.Queues[0]); got != c.want {
			t.Errorf("%s: idle is %v", name, got)
		}
	}
}
