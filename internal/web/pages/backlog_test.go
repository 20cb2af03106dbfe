package pages_test

import (
	"context"
	"io"
	"iter"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/cronce-io/cronce/client"
	"github.com/cronce-io/cronce/internal/attach"
	"github.com/cronce-io/cronce/internal/broker/stream"
	"github.com/cronce-io/cronce/internal/web/pages"
	"github.com/cronce-io/cronce/internal/web/pages/shell"
	"github.com/cronce-io/cronce/job"
	"github.com/cronce-io/cronce/kv"
)

// endless is a stream with more waiting slots than a page can read in time.
type endless struct{ attach.Timers }

func (endless) Waiting(ctx context.Context, _ stream.WaitingFilter) iter.Seq2[stream.WaitingSlot, error] {
	return func(yield func(stream.WaitingSlot, error) bool) {
		<-ctx.Done()
		yield(stream.WaitingSlot{}, ctx.Err())
	}
}

type oneRecord struct{ attach.Ledger }

func (oneRecord) Newest(context.Context, string) iter.Seq2[kv.LedgerEntry, error] {
	return func(yield func(kv.LedgerEntry, error) bool) {
		at := time.Now().UTC().Truncate(time.Second).Add(-time.Minute)
		yield(kv.LedgerEntry{Record: job.Record{Slot: job.NewSlot("report", at), State: job.Failed, Error: "no disk", Due: at, Finished: at}, Time: time.Now()}, nil)
	}
}

type noNews struct{ attach.News }

func (noNews) LastEvent(context.Context) (uint64, error) { return 0, nil }

// A person asks for failures when the workers are behind.
func TestListOfSlotsHasTheRecordsEvenIfTooManySlotsWait(t *testing.T) {
	t.Parallel()
	c := client.Attach(attach.Parts{Timers: endless{}, Ledger: oneRecord{}, News: noNews{}, Now: func(context.Context) (time.Time, error) { return time.Now(), nil }})
	site := pages.New(shell.Config{Client: c, Patience: 20 * time.Second})
	server := httptest.NewServer(site)
	defer server.Close()
	defer site.Close()
	for path, want := range map[string][]string{"/slots": {"no disk", "Slots that wait for a worker are left out"}, "/slots?state=pending": {"Slots that wait for a worker are left out"}, "/slots?state=failed": {"no disk"}} {
		w, err := http.Get(server.URL + path)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(w.Body)
		w.Body.Close()
		for _, text := range want {
			if err != nil || w.StatusCode != http.StatusOK || !strings.Contains(string(body), text) {
				t.Errorf("%s: %d, %v, without %q: %s", path, w.StatusCode, err, text, body)
			}
		}
		if strings.Contains(string(body), "No slot matches") {
			t.Errorf("%s says that there are none", path)
		}
	}
}
