package kv_test

import (
	"context"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/cronce-io/cronce/kv"
)

// The example of the package documentation: print the states of a job's slots.
func ExampleLedger_List() {
	_ = func(ctx context.Context, js jetstream.JetStream) error {
		store, err := kv.Open(ctx, js, kv.Options{ReadOnly: true})
		if err != nil {
			return err
		}
		for e, err := range store.Ledger().List(ctx, kv.ListFilter{Job: "report"}) {
			if err != nil {
				return err
			}
			fmt.Println(e.Slot.ID(), e.State, e.Attempt, e.Error)
		}
		return nil
	}
}
