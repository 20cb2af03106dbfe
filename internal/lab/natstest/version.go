package natstest

import (
	"bytes"
	"fmt"
	"net"
	"strings"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
)

// Version makes a client believe that the server has another version. The text must not be longer
// than the real version. The server itself is unchanged, so a test with Version shows only what the
// client requests from an older server.
func Version(version string) nats.Option {
	actual := fmt.Sprintf("%q:%q", "version", server.VERSION)
	fake := fmt.Sprintf("%q:%q", "version", version)
	return nats.SetCustomDialer(versionDialer{[]byte(actual), []byte(fake + strings.Repeat(" ", max(0, len(actual)-len(fake))))})
}

// versionDialer replaces actual with fake in what the server sends. Both have the same length.
type versionDialer struct{ actual, fake []byte }

func (d versionDialer) Dial(network, address string) (net.Conn, error) {
	conn, err := net.Dial(network, address)
	if err != nil {
		return nil, err
	}
	return &versionConn{conn, d}, nil
}

type versionConn struct {
	net.Conn
	versionDialer
}

func (c *versionConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	copy(p, bytes.ReplaceAll(p[:n], c.actual, c.fake))
	return n, err
}
