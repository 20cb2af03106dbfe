package natstest

import (
	"bytes"
	"fmt"
	"net"
	"strings"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
)

// Version makes the server report another version to the client. The text must not be longer
// than the real one. The server stays the same: a test sees what the client does not ask of
// the older version.
func Version(version string) nats.Option {
	told := fmt.Sprintf("%q:%q", "version", server.VERSION)
	say := fmt.Sprintf("%q:%q", "version", version)
	return nats.SetCustomDialer(liar{[]byte(told), []byte(say + strings.Repeat(" ", max(0, len(told)-len(say))))})
}

type liar struct{ told, say []byte }

func (l liar) Dial(network, address string) (net.Conn, error) {
	conn, err := net.Dial(network, address)
	if err != nil {
		return nil, err
	}
	return &lyingConn{conn, l}, nil
}

type lyingConn struct {
	net.Conn
	liar
}

func (c *lyingConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	copy(p, bytes.ReplaceAll(p[:n], c.told, c.say))
	return n, err
}
