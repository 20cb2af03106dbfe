package main

import (
	"strings"
	"testing"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/cronce-io/cronce/cmd/cronce/base"
	"github.com/cronce-io/cronce/internal/broker/layout"
	"github.com/cronce-io/cronce/internal/broker/space"
	"github.com/cronce-io/cronce/internal/core/plans"
	"github.com/cronce-io/cronce/internal/lab/kvtest"
	"github.com/cronce-io/cronce/internal/lab/natstest"
	"github.com/cronce-io/cronce/job"
	"github.com/cronce-io/cronce/kv"
)

func TestSetupOfMoreReplicasThanServersSaysWhatTheyNeed(t *testing.T) {
	t.Parallel()
	c := cli{env: map[string]string{"CRONCE_SERVER": natstest.Run(t).ClientURL()}}
	says := []string{"3 replicas need as many servers in one cluster", `"cronce setup --replicas 1"`}
	c.run(t, "setup", "--replicas", "3").oneError(t, base.ExitFailed, says...)
	if r := c.run(t, "setup"); r.code != base.ExitDone {
		t.Fatalf("%+v", r)
	}
	c.run(t, "setup", "--replicas", "3").oneError(t, base.ExitFailed, says...)
}

func TestSetupInAnAccountWithTooFewStreamsSaysHowManyItNeeds(t *testing.T) {
	t.Parallel()
	s := natstest.Run(t)
	limits := server.JetStreamAccountLimits{MaxMemory: -1, MaxStore: -1, MaxStreams: 3, MaxConsumers: -1}
	limit := func() {
		if err := s.GlobalAccount().UpdateJetStreamLimits(map[string]server.JetStreamAccountLimits{"": limits}); err != nil {
			t.Fatal(err)
		}
	}
	limit()
	c := cli{env: map[string]string{"CRONCE_SERVER": s.ClientURL()}}
	setup := func(says ...string) {
		t.Helper()
		r := c.run(t, "setup", "--namespace", "few")
		r.stdout = "" // what it could create
		r.oneError(t, base.ExitFailed, append(says, "cronce setup --namespace few")...)
	}
	setup("needs 7 streams", "max_streams", "maximum number of streams")
	limits.MaxStreams, limits.MaxBytesRequired = 7, true
	limit()
	setup("max_bytes_required")
	limits.MaxBytesRequired = false
	limit()
	if r := c.run(t, "setup", "--namespace", "few"); r.code != base.ExitDone {
		t.Errorf("%+v", r)
	}
}

func TestOrdersThatAreNotPermittedSayWhatToTry(t *testing.T) {
	t.Parallel()
	deny := func(subject string) *server.Permissions {
		return &server.Permissions{Publish: &server.SubjectPermission{Deny: []string{subject}}}
	}
	s := natstest.Run(t, func(o *server.Options) {
		o.Users = []*server.User{
			{Username: "all", Password: "p"}, {Username: "viewer", Password: "p", Permissions: deny("cronce.slot.>")},
			{Username: "elsewhere", Password: "p", Permissions: deny("$JS.API.STREAM.INFO.>")},
		}
	})
	as := func(user string) cli {
		return cli{env: map[string]string{"CRONCE_SERVER": strings.Replace(s.ClientURL(), "://", "://"+user+":p@", 1)}}
	}
	store := kvtest.Open(t, s.JetStream(nats.UserInfo("all", "p")), kv.Options{})
	if _, err := store.Jobs().Write(t.Context(), plans.Definition{Job: job.Job{Name: "report", Schedule: "@hourly"}.WithDefaults(), Nonce: "n"}, 0); err != nil {
		t.Fatal(err)
	}
	for user, want := range map[string]string{"viewer": "publish report:@k: not permitted", "elsewhere": "--js-domain"} {
		r := as(user).run(t, "job", "trigger", "report", "--key", "k")
		if r.code != base.ExitFailed || !strings.Contains(r.stderr, want) || strings.Contains(r.stderr, "may have happened") {
			t.Errorf("%s: %+v, want %q", user, r, want)
		}
	}
}

func TestSetupOfALoginThatMayNotIsToldSoForEverySetting(t *testing.T) {
	t.Parallel()
	grants, err := layout.Access{Roles: []layout.Role{layout.RoleViewer}}.Grants()
	if err != nil {
		t.Fatal(err)
	}
	may := server.Permissions{Publish: &server.SubjectPermission{}, Subscribe: &server.SubjectPermission{}}
	for _, g := range grants {
		may.Publish.Allow = append(may.Publish.Allow, g.Publish...)
		may.Subscribe.Allow = append(may.Subscribe.Allow, g.Subscribe...)
	}
	// A login that may read everything, and write nothing of the namespace's state.
	reader := server.Permissions{Publish: &server.SubjectPermission{Deny: []string{"$KV.>", "$JS.API.STREAM.UPDATE.>", "$JS.API.STREAM.CREATE.>", "$JS.API.CONSUMER.CREATE.>"}}}
	s := natstest.Run(t, func(o *server.Options) {
		o.Users = []*server.User{
			{Username: "all", Password: "p"}, {Username: "viewer", Password: "p", Permissions: &may}, {Username: "reader", Password: "p", Permissions: &reader},
		}
	})
	if _, err := space.Setup(t.Context(), s.JetStream(nats.UserInfo("all", "p")), kv.Options{Queues: []string{"default"}}); err != nil {
		t.Fatal(err)
	}
	for _, user := range []string{"viewer", "reader"} {
		c := cli{env: map[string]string{"CRONCE_SERVER": strings.Replace(s.ClientURL(), "://", "://"+user+":p@", 1)}}
		for _, setting := range []string{"--lease=5s", "--horizon=48h", "--retention=200h", "--duplicates=3m", "--queue=reports"} {
			t.Run(user+setting, func(t *testing.T) {
				t.Parallel()
				r := c.run(t, "setup", setting)
				if r.code != base.ExitFailed || !strings.Contains(r.stderr, "not permitted") || strings.Contains(r.stderr, "not answered") || r.stdout != "" {
					t.Errorf("%+v", r)
				}
			})
		}
	}
}
