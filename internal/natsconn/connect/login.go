package connect

import (
	"fmt"
	"os"

	"github.com/nats-io/nats.go"

	"github.com/cronce-io/cronce/internal/codec"
	"github.com/cronce-io/cronce/job"
)

// Login holds credentials. Every field is optional. Creds, User, Token and NKey exclude
// each other; any of them replaces the credentials of a NATS context, and each TLS file
// replaces that of the context.
type Login struct {
	// Creds is a credentials file, NKey a file that contains a seed.
	Creds, NKey string

	User, Password, Token string

	// Cert and Key are a client certificate and its key. CA contains the certificates
	// that verify the server's. All are PEM files.
	Cert, Key, CA string
}

// or returns l with its empty fields filled in from the environment variables with these names,
// after the prefix. It takes credentials from there only if l has none at all. If l has a user
// without a password, it takes the password from there. CRONCE_PASSWORD is the password of --user
// too, but NATS_PASSWORD is only that of NATS_USER.
func (l Login) or(getenv func(string) string, prefix string, names Login) Login {
	env := func(name string) string {
		if name == "" {
			return ""
		}
		return getenv(prefix + name)
	}
	if l.Creds == "" && l.NKey == "" && l.User == "" && l.Token == "" {
		l.Creds, l.NKey, l.User, l.Token = env(names.Creds), env(names.NKey), env(names.User), env(names.Token)
	}
	if l.User != "" && l.Password == "" && (prefix == "CRONCE_" || l.User == env(names.User)) {
		l.Password = env(names.Password)
	}
	if l.Cert == "" && l.Key == "" {
		l.Cert, l.Key = env(names.Cert), env(names.Key)
	}
	if l.CA == "" {
		l.CA = env(names.CA)
	}
	return l
}

// cronceVariables and natsVariables are the names of the environment variables of a login,
// without their prefixes "CRONCE_" and "NATS_". The nats CLI uses the latter.
var (
	cronceVariables = Login{
		Creds: "CREDS", NKey: "NKEY", User: "USER", Password: "PASSWORD", Token: "TOKEN", Cert: "TLSCERT", Key: "TLSKEY", CA: "TLSCA",
	}
	natsVariables = Login{Creds: "CREDS", NKey: "NKEY", User: "USER", Password: "PASSWORD", Token: "TOKEN", Cert: "CERT", Key: "KEY", CA: "CA"}
)

// methods lists the authentication methods that l sets.
func (l Login) methods() (names []string) {
	for name, value := range map[string]string{"credentials": l.Creds, "nkey": l.NKey, "user": l.User, "token": l.Token} {
		if value != "" {
			names = append(names, name)
		}
	}
	return names
}

// check validates l. It sends nothing to a server. Its errors wrap job.ErrInvalid. They name files
// and never quote their content.
func (l Login) check() error {
	switch {
	case len(l.methods()) > 1:
		return fmt.Errorf("%w login: credentials, nkey, user and token exclude each other", job.ErrInvalid)
	case l.Password != "" && l.User == "":
		return fmt.Errorf("%w login: a password without a user", job.ErrInvalid)
	case (l.Cert == "") != (l.Key == ""):
		return fmt.Errorf("%w login: a client certificate needs its key, and a key its certificate", job.ErrInvalid)
	}
	for what, path := range map[string]string{
		"credentials": l.Creds, "nkey": l.NKey, "client certificate": l.Cert, "client key": l.Key, "CA": l.CA,
	} {
		if path == "" {
			continue
		}
		f, err := os.Open(path)
		if err != nil {
			return fmt.Errorf("%w %s file: %w", job.ErrInvalid, what, err)
		}
		f.Close()
	}
	return nil
}

// apply overrides the options in o for which l has a value.
func (l Login) apply(o *nats.Options) error {
	if len(l.methods()) > 0 {
		o.User, o.Password, o.Token, o.Nkey = "", "", "", ""
		o.UserJWT, o.SignatureCB = nil, nil
	}
	var options []nats.Option
	switch {
	case l.Creds != "":
		options = append(options, nats.UserCredentials(l.Creds))
	case l.User != "":
		options = append(options, nats.UserInfo(l.User, l.Password))
	case l.Token != "":
		options = append(options, nats.Token(l.Token))
	case l.NKey != "":
		option, err := nats.NkeyOptionFromSeed(l.NKey)
		if err != nil {
			return fmt.Errorf("%w nkey file %s: %s", job.ErrInvalid, l.NKey, codec.OneLine(err))
		}
		options = append(options, option)
	}
	if l.Cert != "" {
		options = append(options, nats.ClientCert(l.Cert, l.Key))
	}
	if l.CA != "" {
		options = append(options, nats.RootCAs(l.CA))
	}
	for _, option := range options {
		if err := option(o); err != nil {
			return fmt.Errorf("%w login: %s", job.ErrInvalid, codec.OneLine(err))
		}
	}
	return nil
}
