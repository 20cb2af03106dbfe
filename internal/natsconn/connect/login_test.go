package connect

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"net/url"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/cronce-io/cronce/internal/lab/filetest"
	"github.com/cronce-io/cronce/internal/lab/natstest"
	"github.com/cronce-io/cronce/job"
)

func file(t *testing.T, name string, content []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	filetest.Write(t, path, content)
	return path
}

func must[T any](t *testing.T) func(T, error) T {
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// logins are keys and JWTs as nsc makes them. They do not expire. That they are made beforehand spares
// the product the libraries that make them.
type logins struct {
	Users            []struct{ Seed, Public string }
	Operator, System string
	Accounts         map[string]string // the JWT of each account
	Creds            string
}

func madeLogins(t *testing.T) (l logins) {
	t.Helper()
	if err := json.Unmarshal(filetest.Read(t, "testdata/logins.json"), &l); err != nil {
		t.Fatal(err)
	}
	return l
}

// seedFile returns the file of a user's seed, and the user's public key.
func seedFile(t *testing.T, user int) (path, public string) {
	t.Helper()
	u := madeLogins(t).Users[user]
	return file(t, "user.nk", []byte(u.Seed)), u.Public
}

// operated returns a server in operator mode, and the credentials file of a user.
func operated(t *testing.T) (s *natstest.Server, creds string) {
	t.Helper()
	l := madeLogins(t)
	resolver := &server.MemAccResolver{}
	for key, token := range l.Accounts {
		if err := resolver.Store(key, token); err != nil {
			t.Fatal(err)
		}
	}
	claims, err := server.ReadOperatorJWT(file(t, "operator.jwt", []byte(l.Operator)))
	if err != nil {
		t.Fatal(err)
	}
	s = natstest.Run(t, func(o *server.Options) {
		o.TrustedOperators, o.AccountResolver, o.SystemAccount = append(o.TrustedOperators, claims), resolver, l.System
	})
	return s, file(t, "user.creds", []byte(l.Creds))
}

// authority signs certificates for 127.0.0.1. Its fields are PEM files.
type authority struct {
	t    *testing.T
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	ca   string
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	a := &authority{t: t, key: must[*ecdsa.PrivateKey](t)(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der := must[[]byte](t)(x509.CreateCertificate(rand.Reader, template, template, &a.key.PublicKey, a.key))
	a.cert = must[*x509.Certificate](t)(x509.ParseCertificate(der))
	a.ca = file(t, "ca.pem", pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
	return a
}

func (a *authority) issue() (cert, key string) {
	a.t.Helper()
	private := must[*ecdsa.PrivateKey](a.t)(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))
	template := &x509.Certificate{
		SerialNumber: big.NewInt(2), NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der := must[[]byte](a.t)(x509.CreateCertificate(rand.Reader, template, a.cert, &private.PublicKey, a.key))
	secret := must[[]byte](a.t)(x509.MarshalECPrivateKey(private))
	return file(a.t, "cert.pem", pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})),
		file(a.t, "key.pem", pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: secret}))
}

// mutual returns a server that requires a client certificate.
func (a *authority) mutual() *natstest.Server {
	a.t.Helper()
	cert, key := a.issue()
	pair := must[tls.Certificate](a.t)(tls.LoadX509KeyPair(cert, key))
	pool := x509.NewCertPool()
	pool.AddCert(a.cert)
	return natstest.Run(a.t, func(o *server.Options) {
		o.TLS, o.TLSVerify = true, true
		o.TLSConfig = &tls.Config{Certificates: []tls.Certificate{pair}, ClientCAs: pool, ClientAuth: tls.RequireAndVerifyClientCert}
	})
}

// environment returns a getenv that finds only the given pairs.
func environment(t *testing.T, pairs ...string) func(string) string {
	t.Helper()
	vars := map[string]string{"XDG_CONFIG_HOME": t.TempDir()}
	for i := 0; i < len(pairs); i += 2 {
		vars[pairs[i]] = pairs[i+1]
	}
	return func(name string) string { return vars[name] }
}

// Each kind of login works by flag, environment and context. Each server accepts only one
// kind.
func TestEachWayToLogIn(t *testing.T) {
	t.Parallel()
	seed, public := seedFile(t, 0)
	otherSeed, _ := seedFile(t, 1)
	keyed := natstest.Run(t, func(o *server.Options) { o.Nkeys = []*server.NkeyUser{{Nkey: public}} })
	byToken := natstest.Run(t, func(o *server.Options) { o.Authorization = "secret" })
	byPassword := natstest.Run(t, func(o *server.Options) { o.Username, o.Password = "u", "secret" })
	byCreds, creds := operated(t)
	authority := newAuthority(t)
	secure := authority.mutual()
	cert, key := authority.issue()
	ctx := func(s *natstest.Server, format string, args ...any) Config {
		return Config{Context: contextFile(t, fmt.Sprintf(`{"url":%q,%s}`, s.ClientURL(), fmt.Sprintf(format, args...)))}
	}
	env := func(server string, pairs ...string) Config {
		return Config{Server: server, Getenv: environment(t, pairs...)}
	}
	for name, tc := range map[string]struct {
		cfg     Config
		refused bool
	}{
		"nkey":                        {cfg: Config{Server: keyed.ClientURL(), Login: Login{NKey: seed}}},
		"nkey in the environment":     {cfg: env(keyed.ClientURL(), "CRONCE_NKEY", seed)},
		"nkey of the nats CLI":        {cfg: env("", "NATS_URL", keyed.ClientURL(), "NATS_NKEY", seed)},
		"nkey in a context":           {cfg: ctx(keyed, `"nkey":%q`, seed)},
		"nkey over that of a context": {cfg: Config{Context: ctx(keyed, `"nkey":%q`, otherSeed).Context, Login: Login{NKey: seed}}},
		"nkey of another user":        {cfg: Config{Server: keyed.ClientURL(), Login: Login{NKey: otherSeed}}, refused: true},

		"token in the environment": {cfg: env(byToken.ClientURL(), "CRONCE_TOKEN", "secret")},
		"token of the nats CLI":    {cfg: env("", "NATS_URL", byToken.ClientURL(), "NATS_TOKEN", "secret")},
		"token in a URL":           {cfg: Config{Server: "nats://secret@" + byToken.Addr().String()}},
		"token in a context":       {cfg: ctx(byToken, `"token":"secret"`)},
		"wrong token":              {cfg: env(byToken.ClientURL(), "CRONCE_TOKEN", "wrongsecret"), refused: true},

		"user in the environment":   {cfg: env(byPassword.ClientURL(), "CRONCE_USER", "u", "CRONCE_PASSWORD", "secret")},
		"user by flag":              {cfg: Config{Server: byPassword.ClientURL(), Login: Login{User: "u"}, Getenv: environment(t, "CRONCE_PASSWORD", "secret")}},
		"user of the nats CLI":      {cfg: env("", "NATS_URL", byPassword.ClientURL(), "NATS_USER", "u", "NATS_PASSWORD", "secret")},
		"user in a context":         {cfg: ctx(byPassword, `"user":"u","password":"secret"`)},
		"user over a context's key": {cfg: Config{Context: ctx(byPassword, `"nkey":%q`, otherSeed).Context, Getenv: environment(t, "CRONCE_USER", "u", "CRONCE_PASSWORD", "secret")}},
		"NATS_USER needs NATS_URL":  {cfg: env(byPassword.ClientURL(), "NATS_USER", "u", "NATS_PASSWORD", "secret"), refused: true},

		"credentials":                    {cfg: Config{Server: byCreds.ClientURL(), Login: Login{Creds: creds}}},
		"credentials in the environment": {cfg: env(byCreds.ClientURL(), "CRONCE_CREDS", creds)},
		"credentials of the nats CLI":    {cfg: env("", "NATS_URL", byCreds.ClientURL(), "NATS_CREDS", creds)},
		"credentials in a context":       {cfg: ctx(byCreds, `"creds":%q`, creds)},
		"no credentials":                 {cfg: Config{Server: byCreds.ClientURL()}, refused: true},

		"client certificate":                    {cfg: Config{Server: secure.ClientURL(), Login: Login{Cert: cert, Key: key, CA: authority.ca}}},
		"client certificate in the environment": {cfg: env(secure.ClientURL(), "CRONCE_TLSCERT", cert, "CRONCE_TLSKEY", key, "CRONCE_TLSCA", authority.ca)},
		"client certificate of the nats CLI":    {cfg: env("", "NATS_URL", secure.ClientURL(), "NATS_CERT", cert, "NATS_KEY", key, "NATS_CA", authority.ca)},
		"client certificate in a context":       {cfg: ctx(secure, `"cert":%q,"key":%q,"ca":%q`, cert, key, authority.ca)},
		"no client certificate":                 {cfg: Config{Server: secure.ClientURL(), Login: Login{CA: authority.ca}}, refused: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			nc, err := target(t, tc.cfg).Connect(t.Context())
			if (err != nil) != tc.refused {
				t.Fatalf("connecting gives %v", err)
			}
			if err == nil {
				nc.Close()
			} else if strings.Contains(err.Error(), "secret") {
				t.Errorf("the error tells a secret: %v", err)
			}
		})
	}
}

func TestUserWithoutAPasswordTakesNoneOfTheNatsCLI(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		flags Login
		env   []string
		want  string
	}{
		"another user by flag":               {Login{User: "u"}, []string{"NATS_USER", "v", "NATS_PASSWORD", "secret"}, ""},
		"another user in the environment":    {Login{}, []string{"CRONCE_USER", "u", "NATS_USER", "v", "NATS_PASSWORD", "secret"}, ""},
		"a user of its own, with a password": {Login{}, []string{"CRONCE_USER", "u", "CRONCE_PASSWORD", "own", "NATS_USER", "u", "NATS_PASSWORD", "secret"}, "own"},
		"the same user":                      {Login{User: "u"}, []string{"NATS_USER", "u", "NATS_PASSWORD", "secret"}, "secret"},
		"a password without a user":          {Login{User: "u"}, []string{"NATS_PASSWORD", "secret"}, ""},
	} {
		got, err := Resolve(Config{Login: tc.flags, Getenv: environment(t, append(tc.env, "NATS_URL", unreachable)...)})
		if l := got.cfg.Login; err != nil || l.User != "u" || l.Password != tc.want {
			t.Errorf("%s: user %q, password %q, %v, want the password %q", name, l.User, l.Password, err, tc.want)
		}
	}
}

func TestLoginsThatCannotBe(t *testing.T) {
	t.Parallel()
	seed, _ := seedFile(t, 0)
	broken := file(t, "broken", []byte("SUsecretsecretsecret\n"))
	for says, cfg := range map[string]Config{
		"exclude each other":        {Server: unreachable, Login: Login{NKey: seed, User: "u"}},
		"a password without a user": {Server: unreachable, Login: Login{Password: "secret"}},
		"needs its key":             {Server: unreachable, Login: Login{Cert: seed}},
		"nkey file":                 {Server: unreachable, Login: Login{NKey: "/nowhere"}},
		"CA file":                   {Server: unreachable, Login: Login{CA: "/nowhere"}},
		"login":                     {Server: unreachable, Login: Login{Cert: seed, Key: broken}},
		"nkey file " + broken:       {Server: unreachable, Login: Login{NKey: broken}},
		`domain name "a.b"`:         {Server: unreachable, Domain: "a.b"},
	} {
		cfg.Getenv = environment(t)
		got, err := Resolve(cfg)
		if err == nil {
			_, err = got.Connect(t.Context())
		}
		if !errors.Is(err, job.ErrInvalid) || !strings.Contains(err.Error(), says) || strings.Contains(err.Error(), "secretsecret") {
			t.Errorf("%s: %v", says, err)
		}
	}
}

// The streams are in the hub's domain; the client is at the leaf.
func TestJetStreamOfAnotherDomain(t *testing.T) {
	t.Parallel()
	hub := natstest.Run(t, func(o *server.Options) {
		o.ServerName, o.JetStreamDomain = "hub", "hub"
		o.LeafNode.Host, o.LeafNode.Port = "127.0.0.1", server.RANDOM_PORT
	})
	leaf := natstest.Run(t, func(o *server.Options) {
		o.ServerName, o.JetStream = "leaf", false
		o.LeafNode.Remotes = []*server.RemoteLeafOpts{{URLs: []*url.URL{{Scheme: "nats", Host: hub.LeafAddr()}}}}
	})
	natstest.Eventually(t, "the leaf to reach the hub", func() bool { return leaf.NumLeafNodes() == 1 })
	for name, cfg := range map[string]Config{
		"flag":                  {Server: leaf.ClientURL(), Domain: "hub"},
		"context":               {Context: contextFile(t, fmt.Sprintf(`{"url":%q,"jetstream_domain":"hub"}`, leaf.ClientURL()))},
		"context with a prefix": {Context: contextFile(t, fmt.Sprintf(`{"url":%q,"jetstream_api_prefix":"$JS.hub.API"}`, leaf.ClientURL()))},
		"flag over a context's": {Context: contextFile(t, fmt.Sprintf(`{"url":%q,"jetstream_domain":"moon"}`, leaf.ClientURL())), Domain: "hub"},
	} {
		t.Run(name, func(t *testing.T) {
			nc, err := target(t, cfg).Connect(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			defer nc.Close()
			js, err := nc.JetStream()
			if err != nil {
				t.Fatal(err)
			}
			info, err := js.AccountInfo(t.Context())
			if err != nil || info.Domain != "hub" {
				t.Errorf("account info: %+v, %v", info, err)
			}
		})
	}
	nc, err := target(t, Config{Server: leaf.ClientURL()}).Connect(t.Context())
	if err == nil {
		nc.Close()
		t.Fatal("a server without JetStream is taken")
	}
	if !strings.Contains(err.Error(), "--js-domain") {
		t.Errorf("the error of a leaf node without a domain does not name the flag: %v", err)
	}
	nc, err = target(t, Config{Server: leaf.ClientURL(), Domain: "moon"}).Connect(t.Context())
	if err == nil {
		nc.Close()
		t.Fatal("a domain that is not there is taken")
	}
	if !strings.Contains(err.Error(), `domain "moon"`) || strings.Contains(err.Error(), "-js)") {
		t.Error(err)
	}
	both := Config{Context: contextFile(t, fmt.Sprintf(`{"url":%q,"jetstream_domain":"hub","jetstream_api_prefix":"x"}`, leaf.ClientURL()))}
	if _, err := target(t, both).Connect(t.Context()); !errors.Is(err, job.ErrInvalid) {
		t.Errorf("a domain and a prefix: %v", err)
	}
}

func TestAnswersComeUnderThePrefix(t *testing.T) {
	t.Parallel()
	s := natstest.Run(t)
	for want, cfg := range map[string]Config{
		"_INBOX.mine.": {Server: s.ClientURL(), Inbox: "_INBOX.mine"},
		"_OTHER.":      {Context: contextFile(t, fmt.Sprintf(`{"url":%q,"inbox_prefix":"_OTHER"}`, s.ClientURL())), Inbox: "_INBOX.mine"},
		"_INBOX.own.":  {Context: contextFile(t, fmt.Sprintf(`{"url":%q,"inbox_prefix":"_OTHER"}`, s.ClientURL())), Inbox: "_INBOX.own", OwnInbox: true},
		"_INBOX.":      {Server: s.ClientURL()},
	} {
		nc, err := target(t, cfg).Connect(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if got := nc.NewInbox(); !strings.HasPrefix(got, want) {
			t.Errorf("an inbox is %s, want it below %s", got, want)
		}
		nc.Close()
	}
}
