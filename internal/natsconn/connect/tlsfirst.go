package connect

import (
	"crypto/tls"
	"errors"
	"net"
	"net/url"
	"time"
)

// errWantsTLSFirst replaces the error about a connection that the server closed before its greeting, if it
// was found to wait for TLS.
var errWantsTLSFirst = errors.New("expects TLS before its greeting (handshake_first)")

// tlsProbe limits the question whether a server begins with TLS.
const tlsProbe = 2 * time.Second

// orTLSFirst returns errWantsTLSFirst instead of err if the server closed the connection, and one of the
// servers answers a handshake of TLS. A server that is full closes that connection too, and a server that
// greets first answers it with its greeting.
func (t Target) orTLSFirst(err error, servers []string) error {
	if t.cfg.TLSFirst || !isClosed(err) {
		return err
	}
	for _, server := range servers {
		u, parseErr := url.Parse(server)
		if parseErr != nil || u.Scheme == "ws" || u.Scheme == "wss" {
			continue
		}
		port := u.Port()
		if port == "" {
			port = "4222"
		}
		if answersTLS(net.JoinHostPort(u.Hostname(), port)) {
			return errWantsTLSFirst
		}
	}
	return err
}

// answersTLS reports whether a server answers a handshake of TLS at once. It sends nothing else, so it
// need not trust the server.
func answersTLS(address string) bool {
	conn, err := net.DialTimeout("tcp", address, tlsProbe)
	if err != nil {
		return false
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(tlsProbe)) // it fails only if the connection is closed
	var alert tls.AlertError
	err = tls.Client(conn, &tls.Config{InsecureSkipVerify: true}).Handshake() //nolint:gosec // nothing is sent
	return err == nil || errors.As(err, &alert)
}
