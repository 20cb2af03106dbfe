package kv

import "github.com/nats-io/nats.go/jetstream"

// JetStreamOf returns the client that the store was opened with.
func JetStreamOf(s *Store) jetstream.JetStream { return s.JS }
