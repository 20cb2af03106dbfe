package wire

const (
	HeaderBatchID = headerBatchID
	MaxBatch      = maxBatch
	MinBatch      = minBatch
)

// Intercept puts what f returns between the transport and its connection.
func (w Wire) Intercept(f func(Port) Port) { w.Transport.conn = f(w.Transport.conn) }
