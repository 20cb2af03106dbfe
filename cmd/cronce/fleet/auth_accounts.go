package fleet

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/cronce-io/cronce/cmd/cronce/base"
	"github.com/cronce-io/cronce/internal/broker/layout"
)

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

// serverAccounts returns the configuration of a server.
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
