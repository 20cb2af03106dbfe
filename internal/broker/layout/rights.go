package layout

import (
	"slices"
	"strings"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/cronce-io/cronce/internal/core/exchange"
	"github.com/cronce-io/cronce/job"
)

// right is a row of the permission table: a grant, and the roles that have it.
type right struct {
	roles []Role
	Grant
}

// rights is the permission table. It holds every subject that Cronce uses, and the roles
// that use it. If you use a new subject, add it here: tests run a fleet with
// exactly these permissions.
func (a Access) rights() []right {
	return slices.Concat(a.reading(), a.heartbeating(), a.producing(), a.working(), a.operating(), a.calling(), a.serving(), a.settingUp())
}

func (a Access) reading() []right {
	all, nodes, readers := Roles(), []Role{RoleProducer, RoleWorker}, []Role{RoleViewer, RoleOperator}
	jobs, members, ledger := a.bucket("jobs"), a.bucket("nodes"), a.bucket("ledger")
	return []right{
		{all, Grant{What: "receive the answers to its requests", Subscribe: []string{a.Inbox + ".>"}}},
		may("see whether JetStream is enabled, and what is set up", slices.Concat(nodes, readers, []Role{RoleSetup}),
			[]string{a.api() + "INFO"}, a.ask("STREAM.INFO", Streams(a.Namespace)...), a.ask("STREAM.MSG.GET", a.bucket("state"))),
		may("read jobs and nodes", slices.Concat(nodes, readers),
			a.ask("STREAM.MSG.GET", jobs, members), a.ask("DIRECT.GET", jobs, members)),
		may("read the records of slots", slices.Concat(nodes, readers), a.ask("STREAM.MSG.GET", ledger)),
		may("read waiting slots and timers", []Role{RoleProducer, RoleViewer, RoleOperator},
			a.ask("STREAM.MSG.GET", a.timers()), a.ask("DIRECT.GET", a.slots(), a.timers())),
		may("read which slots stand in the lines of jobs", slices.Concat(nodes, readers),
			a.ask("STREAM.MSG.GET", a.waiting()), a.ask("DIRECT.GET", a.waiting())),
		may("list slots and events", readers, a.ask("DIRECT.GET", ledger, EventStream(a.Namespace))),
		may("find problems", readers, a.ask("CONSUMER.LIST", Streams(a.Namespace)...), a.ask("DIRECT.GET", a.bucket("state")), a.ask("CONSUMER.INFO", append(a.onConsumers(), a.alerts())...)),
		{readers, Grant{What: "watch events", Subscribe: []string{a.Namespace + ".event.*.*"}}},
		may("ask nodes for the output and the progress of running slots", readers, []string{a.Namespace + ".node.*.output"}),
	}
}

func (a Access) heartbeating() []right {
	nodes := []Role{RoleProducer, RoleWorker}
	return []right{
		may("follow jobs and nodes", nodes, a.follow("jobs"), a.follow("nodes")),
		may("heartbeat, and declare silent nodes dead", nodes, a.value("nodes", "*")),
		may("list its handlers, and remove the lists of dead nodes", nodes, a.value("state", "handlers.*")),
	}
}

func (a Access) producing() []right {
	producer, orders := []Role{RoleProducer}, []Role{RoleProducer, RoleOperator}
	producers := []string{a.Namespace + ".producers"}
	return []right{
		may("publish slots", orders, []string{a.Namespace + ".slot.*.*"}),
		may("set timers", orders, []string{TimersOf(a.Namespace, "*")}),
		{producer, Grant{What: "set the timers that callers ask for", Subscribe: []string{LaterSubject(a.Namespace, "*")}}},
		may("publish events", orders, []string{a.Namespace + ".event.*.*"}),
		may("know which late slots had an alert", producer, a.ask("DIRECT.GET", EventStream(a.Namespace)), a.value("state", "alert.*")),
		may("move the watermark", producer, a.value("state", WatermarkKey)),
		may("remove from the lines of jobs what was called", producer, a.ask("STREAM.PURGE", a.waiting())),
		may("sweep for lost slots", producer, a.follow("ledger"), a.follow("state"), a.value("state", SweepKey), a.ask("CONSUMER.LIST", a.slots(), a.timers())),
		a.consumingOn(producer),
		{producer, Grant{What: "exchange announcements with other producers", Publish: producers, Subscribe: producers}},
	}
}

func (a Access) working() []right {
	worker := []Role{RoleWorker}
	ns, queues, jobs := a.Namespace, orAny(a.Queues), orAny(a.Jobs)
	consumers := slices.Concat(around(a.slots()+".", queues, ""), around(a.timers()+".", queues, ""))
	if len(a.Queues) > 0 {
		consumers = append(consumers, around(a.slots()+".", queues, bulkSuffix)...)
	}
	followers := a.Followers
	if len(a.Jobs) == 0 {
		followers = []string{"*"}
	}
	events := around(ns+".event.*.", jobs, "")
	if len(a.Jobs) > 0 {
		for _, kind := range []job.EventKind{job.EventFenced, job.EventAlert} { // about a dead node, or the namespace
			events = append(events, ns+".event."+string(kind)+"."+exchange.NoJob)
		}
	}
	rights := []right{
		may("receive slots of its queues", worker, a.ask("CONSUMER.INFO", consumers...), a.ask("CONSUMER.MSG.NEXT", consumers...)),
		may("ack them", worker, acking(consumers)),
		may("record their claims and outcomes", worker, a.value("ledger", around("", jobs, ".>")...)),
		may("put slots into the lines of jobs, and call them", worker, around(ns+".wait.", jobs, ""), around(ns+".slot.*.", jobs, "")),
		may("publish the slots of their followers", worker, around(ns+".slot.*.", followers, ""), a.ask("DIRECT.GET", a.bucket("ledger"))),
		may("write the locks of jobs", worker, a.value("state", around("lock.", jobs, "")...)),
		may("know which outcomes of long ago had an alert", worker, a.ask("DIRECT.GET", EventStream(ns))),
		may("know which jobs have failed, to report when they recover", worker, a.value("state", around("alert.", jobs, "")...)),
		may("publish events of jobs", worker, events),
		{worker, Grant{What: "answer requests to cancel a slot, and to send its output", Publish: replies(ns), Subscribe: []string{ns + ".node.*.cancel", ns + ".node.*.output"}}},
		{[]Role{RoleWorker, RoleOperator}, Grant{What: "ask workers to cancel a running slot", Publish: []string{ns + ".node.*.cancel"}, Subscribe: replies(ns)}},
	}
	if len(a.Jobs) == 0 { // alerts concern all jobs
		alerts := []string{a.alerts()}
		rights = append(rights, may("deliver alerts", worker, a.ask("CONSUMER.INFO", alerts...), a.ask("CONSUMER.MSG.NEXT", alerts...), acking(alerts)))
	}
	return rights
}

// acking returns the subjects of the acks to these consumers, each named STREAM.CONSUMER. Servers
// with the feature js_ack_fc_v2 put the domain and the account before these names.
func acking(consumers []string) []string {
	return slices.Concat(around("$JS.ACK.", consumers, ".>"), around("$JS.ACK.*.*.", consumers, ".>"))
}

// consumingOn returns the right of a producer to use the consumers of the messages that start jobs.
func (a Access) consumingOn(producer []Role) right {
	var subjects []string
	for _, on := range a.On {
		stream, name, _ := strings.Cut(on, "/")
		consumers := around(stream+".", OnConsumers(a.Namespace, name), "")
		subjects = slices.Concat(subjects, a.ask("STREAM.INFO", stream), a.ask("CONSUMER.INFO", consumers...),
			a.ask("CONSUMER.CREATE", consumers...), a.ask("CONSUMER.CREATE", around("", consumers, ".>")...),
			a.ask("CONSUMER.MSG.NEXT", consumers...), a.ask("CONSUMER.DELETE", consumers...), acking(consumers))
	}
	return may("consume the messages that start jobs", producer, subjects)
}

// onConsumers returns the consumers of the messages that start jobs.
func (a Access) onConsumers() (names []string) {
	for _, on := range a.On {
		stream, name, _ := strings.Cut(on, "/")
		names = append(names, around(stream+".", OnConsumers(a.Namespace, name), "")...)
	}
	return names
}

func (a Access) operating() []right {
	operator := []Role{RoleOperator}
	return []right{
		may("change jobs", operator, a.value("jobs", "*")),
		may("end and reopen slots", operator, a.value("ledger", "*.>")),
		may("remove a lock that cannot be read", operator, a.value("state", "lock.*")),
		may("declare a silent node dead, to end its slot", operator, a.value("nodes", "*")),
		may("cancel timers", operator, a.ask("STREAM.PURGE", a.timers())),
		may("reset the watermark", operator, a.value("state", WatermarkKey)),
	}
}

// calling returns the rights of a caller. A caller reads only with direct gets, whose request
// subject contains the subject that it reads. So the server can check the job; see
// wire.Wire.ReadDirectly.
func (a Access) calling() []right {
	caller, ns := []Role{RoleCaller}, a.Namespace
	value := func(bucket string) string { return a.bucket(bucket) + ".$KV." + ns + "_" + bucket + "." }
	return []right{
		may("see whether JetStream is enabled, and what is set up", caller,
			[]string{a.api() + "INFO"}, a.ask("STREAM.INFO", Streams(ns)...), a.ask("DIRECT.GET", value("state")+SettingsKey)),
		may("read the jobs that it may trigger", caller, a.ask("DIRECT.GET", around(value("jobs"), a.Jobs, "")...)),
		may("trigger them", caller, around(ns+".slot.*.", a.Jobs, "")),
		// A timer's headers choose what the server publishes with its own rights, so a caller sets none.
		{caller, Grant{
			What:    "ask nodes to trigger them later",
			Publish: around(LaterSubject(ns, ""), a.Jobs, ""), Subscribe: around(LaterReplies(ns, ""), a.Jobs, ".>"),
		}},
		may("publish that it has triggered them", caller, around(ns+".event."+string(job.EventOrdered)+".", a.Jobs, "")),
		may("read the records of their slots", caller,
			a.ask("DIRECT.GET", around(value("ledger"), a.Jobs, ".>")...), a.ask("DIRECT.GET", around(a.timers()+"."+ns+".timer.set.", a.Jobs, ".>")...)),
		{caller, Grant{What: "receive the events of their slots", Subscribe: around(ns+".event.*.", a.Jobs, "")}},
	}
}

func (a Access) serving() []right {
	nodes, readers, operator := []Role{RoleProducer, RoleWorker}, []Role{RoleViewer, RoleOperator}, []Role{RoleOperator}
	everyone := []Role{RoleProducer, RoleWorker, RoleViewer, RoleOperator, RoleCaller}
	name := ServiceName(a.Namespace)
	var asked []string
	for _, verb := range []string{"PING", "INFO", "STATS"} {
		asked = append(asked, "$SRV."+verb, "$SRV."+verb+"."+name, "$SRV."+verb+"."+name+".*")
	}
	all := APISubject(a.Namespace, "*.*")
	return []right{
		may("read its own permissions", everyone, []string{PermissionsSubject}),
		{nodes, Grant{
			What:    "answer questions about itself as a NATS service",
			Publish: replies(a.Namespace), Subscribe: append([]string{APISubject(a.Namespace, "node.*")}, asked...),
		}},
		{readers, Grant{What: "ask services about themselves", Publish: append([]string{APISubject(a.Namespace, "node.*")}, asked...), Subscribe: replies(a.Namespace)}},
		may("ask nodes about jobs and slots", []Role{RoleViewer},
			around(a.Namespace+".api.", []string{"job.show", "slot.show", "slot.explain"}, "")),
		{operator, Grant{What: "send orders to nodes, and carry out the orders of others", Publish: append(replies(a.Namespace), all), Subscribe: []string{all}}},
	}
}

func replies(namespace string) []string { return []string{ReplyPrefix(namespace) + ".>"} }

func (a Access) settingUp() []right {
	setup, ns := []Role{RoleSetup}, a.Namespace
	return []right{
		may("create and change streams and buckets", setup,
			a.ask("STREAM.CREATE", Streams(ns)...), a.ask("STREAM.UPDATE", Streams(ns)...)),
		may("create and change queues", setup,
			a.ask("CONSUMER.LIST", a.slots(), a.timers()), a.ask("CONSUMER.INFO", a.slots()+".*", a.timers()+".*"),
			a.ask("CONSUMER.CREATE", a.slots()+".*."+ns+".slot.*.>", a.timers()+".*."+ns+".timer.due.*.>")),
		may("create the consumer of alerts", setup,
			a.ask("CONSUMER.INFO", a.alerts()), a.ask("CONSUMER.CREATE", a.alerts()+"."+ns+".event.alert.*")),
		may("store the settings", setup, a.value("state", SettingsKey)),
	}
}

// may returns the right to publish on the subjects.
func may(what string, roles []Role, subjects ...[]string) right {
	return right{roles, Grant{What: what, Publish: slices.Concat(subjects...)}}
}

func (a Access) api() string {
	if a.Domain != "" {
		return "$JS." + a.Domain + ".API."
	}
	return jetstream.DefaultAPIPrefix
}

func (a Access) slots() string             { return SlotStream(a.Namespace) }
func (a Access) alerts() string            { return EventStream(a.Namespace) + "." + AlertConsumer }
func (a Access) waiting() string           { return WaitingStream(a.Namespace) }
func (a Access) timers() string            { return TimerStream(a.Namespace) }
func (a Access) bucket(what string) string { return "KV_" + Bucket(a.Namespace, what) }

// Ordering returns the subjects to which each group of orders publishes: orders that change jobs,
// that start runs, and that end and reopen slots.
func (a Access) Ordering() (jobs, runs, slots []string) {
	runs = []string{a.Namespace + ".slot.*.*"}
	return a.value("jobs", "*"), runs, append(a.value("ledger", "*.>"), runs...)
}

// ask returns the subjects of one operation of the JetStream API, one for each stream or consumer
// in about.
func (a Access) ask(operation string, about ...string) []string {
	return around(a.api()+operation+".", about, "")
}

// value returns the subjects that store the given keys of a bucket.
func (a Access) value(bucket string, keys ...string) []string {
	prefix := "$KV." + Bucket(a.Namespace, bucket) + "."
	if a.Domain != "" {
		prefix = a.api() + prefix
	}
	return around(prefix, keys, "")
}

// follow returns the subjects that a client needs to read a bucket through its own
// consumer.
func (a Access) follow(what string) []string {
	any := a.bucket(what) + ".*"
	return slices.Concat(a.ask("CONSUMER.CREATE", any), a.ask("CONSUMER.INFO", any), a.ask("CONSUMER.MSG.NEXT", any), a.ask("CONSUMER.DELETE", any))
}

func around(before string, names []string, after string) []string {
	all := make([]string, len(names))
	for i, name := range names {
		all[i] = before + name + after
	}
	return all
}

// orAny returns names, or the wildcard if names is empty.
func orAny(names []string) []string {
	if len(names) == 0 {
		return []string{"*"}
	}
	return names
}
