package wire

import "github.com/nats-io/nats.go"

const (
	HeaderBatchID = headerBatchID
	MaxBatch      = maxBatch
	MinBatch      = minBatch
)

// Intercept puts what f returns between the transport and its connection.
func (w Wire) Intercept(f func(Port) Port) { w.Transport.conn = f(w.Transport.conn) }

// Remembers reports whether the connection has a transport, which all wires of it share.
func Remembers(conn *nats.Conn) bool {
	_, ok := transports.Load(conn)
	return ok
}
