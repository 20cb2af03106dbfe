package layout

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/cronce-io/cronce/internal/codec"
	"github.com/cronce-io/cronce/job"
)

// Role is a purpose of a login to the NATS server. A login may have several roles.
type Role string

// The roles.
const (
	// RoleProducer publishes due slots and triggered runs.
	RoleProducer Role = "producer"
	// RoleWorker runs slots and records their outcomes.
	RoleWorker Role = "worker"
	// RoleOperator changes jobs and slots.
	RoleOperator Role = "operator"
	// RoleViewer reads and changes nothing.
	RoleViewer Role = "viewer"
	// RoleCaller triggers runs of named jobs and waits for their outcomes.
	RoleCaller Role = "caller"
	// RoleSetup creates streams, buckets and queues, and changes their settings.
	RoleSetup Role = "setup"
)

// Roles returns all roles.
func Roles() []Role {
	return []Role{RoleProducer, RoleWorker, RoleOperator, RoleViewer, RoleCaller, RoleSetup}
}

// Access describes a login to create: its roles and its limits. It needs at least one role. The
// other zero values mean the default namespace, no limits, no messages that start jobs, and the
// JetStream of the login's own account.
type Access struct {
	Namespace string
	Roles     []Role

	// Queues are the queues that a worker may take slots from. Empty: all.
	Queues []string

	// Jobs are the jobs whose records and locks a worker may write, and whose events it
	// may publish. Empty: all. The server checks only subjects, so readers check that a
	// value or an event names the same job as its subject. Jobs are also the jobs that a
	// caller may trigger; a caller needs at least one.
	Jobs []string

	// Followers are the jobs that run after Jobs. A worker publishes their slots. If Jobs
	// is empty, the worker may publish the slots of all jobs. Workers reject a message
	// whose subject names another job than its slot (core.Message.CheckSubject). But the
	// stream deduplicates by message ID on all subjects, so such a message can suppress
	// the slot that it names until the sweep publishes that slot again.
	Followers []string

	// On are the jobs that messages of other streams start, as STREAM/JOB. A producer
	// consumes those messages. A viewer or an operator sees how many are pending.
	On []string

	// Domain is the JetStream domain, if clients have to name one.
	Domain string

	// Inbox is the subject prefix on which the login receives replies. Empty: InboxPrefix
	// of the namespace.
	Inbox string
}

// InboxPrefix returns the subject prefix on which clients of a namespace receive replies.
// Each namespace has its own, so logins of other namespaces cannot read them.
func InboxPrefix(namespace string) string { return "_INBOX." + namespace }

// ReplyPrefix returns the subject prefix on which clients of a namespace receive the
// replies of nodes. Nodes may publish there and on no other reply subject. The client
// chooses the reply subject of a request, so a permission to reply anywhere would be a
// permission to publish anywhere.
func ReplyPrefix(namespace string) string { return namespace + ".reply" }

// ServiceName returns the name of the NATS micro service that the nodes of a namespace
// provide.
func ServiceName(namespace string) string {
	if namespace == job.DefaultNamespace {
		return namespace
	}
	return job.DefaultNamespace + "-" + namespace
}

// APISubject returns the subject of an endpoint of the namespace's NATS micro service.
func APISubject(namespace, endpoint string) string { return namespace + ".api." + endpoint }

// LaterSubject returns the subject on which a login that may not set timers asks a node to trigger a
// job later. "*" stands for every job.
func LaterSubject(namespace, name string) string { return APISubject(namespace, "later."+name) }

// LaterReplies returns the subject prefix on which such a login receives the answers. It names the
// job, so that the login of a caller does not receive the answers to others.
func LaterReplies(namespace, name string) string { return ReplyPrefix(namespace) + ".later." + name }

// Grant is one thing that a login may do, with the subjects that it needs for that. A login
// may use only the subjects of its grants. Its JSON is a line of "cronce auth -o json".
type Grant struct {
	What      string   `json:"what"`
	Publish   []string `json:"publish,omitempty"`
	Subscribe []string `json:"subscribe,omitempty"`
}

// Grants returns the least permissions that the login needs. Errors wrap job.ErrInvalid.
func (a Access) Grants() ([]Grant, error) {
	a.Namespace = cmp.Or(a.Namespace, job.DefaultNamespace)
	a.Inbox = cmp.Or(a.Inbox, InboxPrefix(a.Namespace))
	if err := a.validate(); err != nil {
		return nil, err
	}
	var grants []Grant
	for _, r := range a.rights() {
		wanted := len(r.Publish)+len(r.Subscribe) > 0
		if wanted && slices.ContainsFunc(a.Roles, func(role Role) bool { return slices.Contains(r.roles, role) }) {
			grants = append(grants, r.Grant)
		}
	}
	return grants, nil
}

// validate returns an error that wraps job.ErrInvalid.
func (a Access) validate() error {
	if len(a.Roles) == 0 {
		return fmt.Errorf("%w access: no role is named", job.ErrInvalid)
	}
	for _, r := range a.Roles {
		if !slices.Contains(Roles(), r) {
			return fmt.Errorf("%w role %q: want one of %s", job.ErrInvalid, r, strings.Join(codec.Strings(Roles()...), ", "))
		}
	}
	if err := codec.ValidateName("namespace", a.Namespace); err != nil {
		return err
	}
	for _, names := range []struct {
		what string
		all  []string
	}{{"queue", a.Queues}, {"job", a.Jobs}, {"follower", a.Followers}} {
		if err := codec.ValidateName(names.what, names.all...); err != nil {
			return err
		}
		caller := names.what == "job" && slices.Contains(a.Roles, RoleCaller)
		if len(names.all) > 0 && !slices.Contains(a.Roles, RoleWorker) && !caller {
			return fmt.Errorf("%w access: this login cannot be limited to a %s: only a worker can, and a caller to a job", job.ErrInvalid, names.what)
		}
	}
	if len(a.Jobs) == 0 && slices.Contains(a.Roles, RoleCaller) {
		return fmt.Errorf("%w access: a caller may trigger named jobs only: name at least one job", job.ErrInvalid)
	}
	for _, on := range a.On {
		stream, name, _ := strings.Cut(on, "/")
		if codec.ValidateName("stream", stream) != nil || codec.ValidateName("job", name) != nil {
			return fmt.Errorf("%w access: on %q: want STREAM/JOB, like ORDERS/charge", job.ErrInvalid, on)
		}
		if !slices.ContainsFunc(a.Roles, func(r Role) bool { return r == RoleProducer || r == RoleViewer || r == RoleOperator }) {
			return fmt.Errorf("%w access: only a producer consumes the messages that start jobs, and only a viewer or an operator examines their consumers", job.ErrInvalid)
		}
	}
	if len(a.Followers) > 0 && len(a.Jobs) == 0 {
		return fmt.Errorf("%w access: followers are named only with the jobs that they follow", job.ErrInvalid)
	}
	if a.Domain != "" {
		if err := codec.ValidateName("domain", a.Domain); err != nil {
			return err
		}
	}
	return CheckInbox(a.Inbox)
}

// CheckInbox returns an error that wraps job.ErrInvalid unless prefix consists of names of
// A-Z a-z 0-9 _ - with dots between them.
func CheckInbox(prefix string) error {
	return codec.ValidateName("part of the inbox prefix", strings.Split(prefix, ".")...)
}

// PermissionsSubject is the subject of a request that a server answers with the permissions of
// the login that sent it.
const PermissionsSubject = "$SYS.REQ.USER.INFO"

// Permissions are the permissions of a login, as the server reports them. The zero value permits
// everything.
type Permissions struct {
	Publish   *rule `json:"publish"`
	Subscribe *rule `json:"subscribe"`
}

// rule allows the subjects in Allow, except those in Deny. An empty Allow allows all.
type rule struct {
	Allow []string `json:"allow"`
	Deny  []string `json:"deny"`
}

// ParsePermissions reads the answer to PermissionsSubject. server is the ID of the server that answered.
func ParsePermissions(answer []byte) (p Permissions, server string, err error) {
	var read struct {
		Server struct {
			ID string `json:"id"`
		} `json:"server"`
		Data struct {
			Permissions Permissions `json:"permissions"`
		} `json:"data"`
	}
	err = json.Unmarshal(answer, &read)
	return read.Data.Permissions, read.Server.ID, err
}

// MayPublish reports whether the login may publish on every subject of the pattern.
func (p Permissions) MayPublish(pattern string) bool { return p.Publish.permits(pattern) }

// MaySubscribe reports whether the login may subscribe to the pattern.
func (p Permissions) MaySubscribe(pattern string) bool { return p.Subscribe.permits(pattern) }

func (r *rule) permits(subject string) bool {
	if r == nil {
		return true
	}
	for _, deny := range r.Deny {
		if covers(deny, subject) || covers(subject, deny) {
			return false
		}
	}
	return len(r.Allow) == 0 || slices.ContainsFunc(r.Allow, func(allow string) bool { return covers(allow, subject) })
}

// covers reports whether pattern matches every subject that the pattern narrow matches.
func covers(pattern, narrow string) bool {
	p, s := strings.Split(pattern, "."), strings.Split(narrow, ".")
	for i, token := range p {
		switch {
		case token == ">":
			return i < len(s)
		case i >= len(s), token == "*" && s[i] == ">", token != "*" && token != s[i]:
			return false
		}
	}
	return len(p) == len(s)
}
