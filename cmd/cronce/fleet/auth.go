package fleet

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/cronce-io/cronce/cmd/cronce/base"
	"github.com/cronce-io/cronce/internal/broker/layout"
	"github.com/cronce-io/cronce/internal/codec"
	"github.com/cronce-io/cronce/internal/text/printable"
)

type authFlags struct {
	queues, jobs, followers, on []string
	user, format                string
	accounts                    bool
}

const (
	formatServer = "server"
	formatNsc    = "nsc"
)

const authLong = `Auth prints the NATS permissions that a role needs, and no others. It asks no server and
changes nothing. If you name several roles, one login gets all of them. Roles:

  producer  publishes due slots, sets triggers, finds lost slots and publishes them again
            (cronce run --no-work); --on for each job that messages start
  worker    takes slots, runs them, records the outcome (cronce run --no-produce);
            --queue, and --job with --follower, narrow it
  operator  changes jobs and slots, and triggers (job apply, slot cancel and so on)
  viewer    lists, shows and watches; can change nothing
  caller    triggers the jobs named with --job and waits for their outcomes, from
            "cronce job trigger --wait" or package client
  setup     creates streams, buckets and queues, and changes their settings

Run setup first. Neither nodes nor operators need to create anything after

  cronce setup --queue default

A node without permission to write the registry compares its file with it and logs the
differences; an operator writes the jobs with "cronce job apply -f".

The format server is one entry of "users" in a server's configuration, with the password
from the server's environment. The format nsc is a command line for nsc.

Every login receives replies below its inbox prefix, by default _INBOX.NAMESPACE, which
"cronce" uses by itself. Configure it in other clients: nats --inbox-prefix, in Go
nats.CustomInboxPrefix. Logins with the same prefix can receive each other's replies;
--inbox-prefix gives a login its own.

Nodes reply only on subjects below NAMESPACE.reply. A client other than "cronce" that
sends requests to nodes uses that as its inbox prefix: nats --inbox-prefix cronce.reply.

Within one account these permissions protect against mistakes, not against malice. A
client chooses the subject of a server's reply, and the server checks no permission for
it. So any login can have data that it may read written anywhere in its account, and can
have streams removed. Only accounts isolate logins:

  cronce auth --accounts [LOGIN...]

prints a server configuration in which each login has its own account, and imports what
it may use from the account of the streams. LOGIN is a role, or several joined by +; the
default is setup, producer+worker, operator, viewer. Clients name the domain fleet, or
the one in --js-domain: CRONCE_JS_DOMAIN=fleet. docs/threat-model.md has the details.

With -o json, one line for each grant:

  {"what":"publish slots","publish":["cronce.slot.*.*"]}`

func NewAuthCommand(a *base.App) *cobra.Command {
	var f authFlags
	cmd := &cobra.Command{
		Use:   "auth ROLE...",
		Short: "Print the NATS permissions that a role needs",
		Long:  authLong,
		Example: `  cronce auth viewer
  cronce auth producer --on ORDERS/charge
  cronce auth caller --job report
  cronce auth worker --queue reports --inbox-prefix _INBOX.reports
  cronce auth producer worker --namespace billing --format nsc | sh
  cronce auth --accounts > nats.conf`,
		Args: func(cmd *cobra.Command, args []string) error {
			if f.accounts {
				return nil
			}
			return base.Arguments(cobra.MinimumNArgs(1))(cmd, args)
		},
		ValidArgs: codec.Strings(layout.Roles()...),
		RunE: func(_ *cobra.Command, args []string) error {
			return runAuth(a, f, args)
		},
	}
	flags := cmd.Flags()
	flags.StringSliceVar(&f.queues, "queue", nil, "a worker takes only slots of this `queue`; repeatable")
	flags.StringSliceVar(&f.jobs, "job", nil, "a worker records only slots of this `job`, and a caller triggers only this job; repeatable")
	flags.StringSliceVar(&f.followers, "follower", nil, "with --job: the worker may also publish slots of this `job`, which comes after that one; repeatable")
	flags.StringSliceVar(&f.on, "on", nil, "`STREAM/JOB`: a producer takes the messages of the stream that start the job, and the doctor of a viewer or operator may inspect them; repeatable")
	flags.StringVar(&f.user, "login", "", "`name` of the login (default: the namespace and the roles)")
	flags.BoolVar(&f.accounts, "accounts", false, "print a server configuration in which each login has its own account")
	flags.StringVar(&f.format, "format", formatServer, "`format` of the output: server (a configuration file) or nsc")
	base.Complete(cmd, "format", formatServer, formatNsc)
	return cmd
}

func runAuth(a *base.App, f authFlags, args []string) error {
	if f.accounts {
		return authAccounts(a, f, args)
	}
	if err := base.OneOf("--format", []string{formatServer, formatNsc}, f.format); err != nil {
		return err
	}
	access := layout.Access{Namespace: a.Namespace, Queues: f.queues, Jobs: f.jobs, Followers: f.followers, On: f.on, Domain: a.Domain, Inbox: a.Inbox}
	for _, arg := range args {
		access.Roles = append(access.Roles, layout.Role(arg))
	}
	grants, err := access.Grants()
	if err != nil {
		return base.Try(base.Usage(err), "cronce auth --help")
	}
	f.user = cmp.Or(f.user, a.Namespace+"-"+strings.Join(args, "-"))
	if strings.ContainsFunc(f.user, func(r rune) bool { return printable.Hidden(r) || strings.ContainsRune("\"'\\\n\t", r) }) {
		return base.Usage(fmt.Errorf("invalid --login %q: it has quotes, backslashes or control characters", f.user))
	}
	switch {
	case a.Output == base.OutputJSON:
		return base.PrintLines(a, slices.Values(grants))
	case f.format == formatNsc:
		_, err = fmt.Fprint(a.Stdout, nscCommand(f.user, grants))
	default:
		_, err = fmt.Fprintf(a.Stdout, "{\n%s}\n", serverUser(f.user, grants))
	}
	return err
}

// serverUser returns the members of an entry of "users" in the configuration of a server.
func serverUser(user string, grants []layout.Grant) string {
	var b strings.Builder
	list := func(verb string, subjects func(layout.Grant) []string) {
		fmt.Fprintf(&b, "    %s: {\n      allow: [\n", verb)
		seen := map[string]bool{}
		for _, g := range grants {
			heading := "        # " + g.What + "\n"
			for _, s := range subjects(g) {
				if !seen[s] {
					seen[s] = true
					fmt.Fprintf(&b, "%s        %q\n", heading, s)
					heading = ""
				}
			}
		}
		b.WriteString("      ]\n    }\n")
	}
	fmt.Fprintf(&b, "  user: \"%s\"\n  password: $%s\n  permissions: {\n", user, passwordVariable(user))
	list("publish", func(g layout.Grant) []string { return g.Publish })
	list("subscribe", func(g layout.Grant) []string { return g.Subscribe })
	b.WriteString("  }\n")
	return b.String()
}

// passwordVariable is the variable of the server's environment that holds the
// user's password.
func passwordVariable(user string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z':
			return r - 'a' + 'A'
		case r >= 'A' && r <= 'Z', r >= '0' && r <= '9':
			return r
		}
		return '_'
	}, user) + "_PASSWORD"
}

func nscCommand(user string, grants []layout.Grant) string {
	var publish, subscribe []string
	for _, g := range grants {
		publish, subscribe = append(publish, g.Publish...), append(subscribe, g.Subscribe...)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "nsc add user --name '%s'", user)
	for _, list := range []struct {
		flag     string
		subjects []string
	}{{"--allow-pub", publish}, {"--allow-sub", subscribe}} {
		slices.Sort(list.subjects)
		for _, s := range slices.Compact(list.subjects) {
			fmt.Fprintf(&b, " \\\n  %s '%s'", list.flag, s)
		}
	}
	b.WriteString("\n")
	return b.String()
}

// defaultLogins are the logins of a fleet whose nodes all produce and work.
var defaultLogins = []string{"setup", "producer+worker", "operator", "viewer"}

// authAccounts prints a server configuration. Each argument is a login: a role, or several
// joined by +.
func authAccounts(a *base.App, f authFlags, args []string) error {
	if f.user != "" || f.format != formatServer || a.Output == base.OutputJSON {
		return base.Usage(errors.New("--accounts prints a server's configuration with a login for each argument: leave out --login, --format and -o json"))
	}
	if len(args) == 0 {
		args = defaultLogins
	}
	var logins []layout.Login
	for _, arg := range args {
		access := layout.Access{Inbox: a.Inbox}
		for role := range strings.SplitSeq(arg, "+") {
			access.Roles = append(access.Roles, layout.Role(role))
		}
		if slices.Contains(access.Roles, layout.RoleWorker) {
			access.Queues, access.Jobs, access.Followers = f.queues, f.jobs, f.followers
		}
		if slices.Contains(access.Roles, layout.RoleCaller) {
			access.Jobs = f.jobs
		}
		if slices.ContainsFunc(access.Roles, func(r layout.Role) bool {
			return r == layout.RoleProducer || r == layout.RoleOperator || r == layout.RoleViewer
		}) {
			access.On = f.on
		}
		logins = append(logins, layout.Login{Name: a.Namespace + "-" + strings.ReplaceAll(arg, "+", "-"), Access: access})
	}
	domain := cmp.Or(a.Domain, layout.DefaultDomain)
	accounts, err := layout.Accounts(a.Namespace, domain, logins)
	if err != nil {
		return base.Try(base.Usage(err), "cronce auth --help")
	}
	_, err = fmt.Fprint(a.Stdout, serverAccounts(domain, accounts))
	return err
}

func serverAccounts(domain string, accounts []layout.Account) string {
	var b strings.Builder
	fmt.Fprintf(&b, "# Each login has its own account, and imports what it may use of the streams.\n"+
		"# Connect with: --js-domain %s\n\njetstream {\n  sync_interval: always\n}\n\naccounts {\n", domain)
	for _, account := range accounts {
		fmt.Fprintf(&b, "%s: {\n", account.Name)
		if account.Streams {
			b.WriteString("  jetstream: enabled\n")
		}
		if account.Login.Name != "" {
			b.WriteString("  users: [ {\n" + serverUser(account.Login.Name, account.Login.Grants) + "  } ]\n")
		}
		if len(account.Exports) > 0 {
			b.WriteString("  exports: [\n")
			for _, e := range account.Exports {
				kind, many := "service", ""
				if e.Stream {
					kind = "stream"
				}
				if e.Many {
					many = ", response_type: stream"
				}
				fmt.Fprintf(&b, "    { %s: %q%s, accounts: [%s] }\n", kind, e.Subject, many, strings.Join(e.To, ", "))
			}
			b.WriteString("  ]\n")
		}
		if len(account.Imports) > 0 {
			b.WriteString("  imports: [\n")
			for _, i := range account.Imports {
				kind, as := "service", ""
				if i.Stream {
					kind = "stream"
				}
				if i.As != "" {
					as = fmt.Sprintf(", to: %q", i.As)
				}
				fmt.Fprintf(&b, "    { %s: { account: %s, subject: %q }%s }\n", kind, i.Account, i.Subject, as)
			}
			b.WriteString("  ]\n")
		}
		b.WriteString("}\n")
	}
	b.WriteString("}\n")
	return b.String()
}
