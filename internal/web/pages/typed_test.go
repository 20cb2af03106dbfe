package pages_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/cronce-io/cronce/client"
	"github.com/cronce-io/cronce/internal/web/pages"
	"github.com/cronce-io/cronce/internal/web/pages/shell"
)

func TestTriggerSaysThatARunOfItsKeyExistsForAnotherTime(t *testing.T) {
	t.Parallel()
	a := newJobs(t)
	const first, other = "2126-11-21 07:00", "2126-11-22 07:00"
	send := func(key, at string) (int, string, string) {
		return a.order(t, "jobs/daily/trigger", url.Values{"key": {key}, "at": {at}, "zone": {"Asia/Tokyo"}})
	}
	for range 2 { // a form that is sent twice is one order
		if status, _, text := send("later", first); status != http.StatusSeeOther {
			t.Fatalf("%d: %s", status, text)
		}
	}
	for _, at := range []string{other, ""} {
		status, _, text := send("later", at)
		if want := "the run daily:@later was triggered before, for Thu 21 Nov 2126 07:00:00 JST."; status != http.StatusUnprocessableEntity || !strings.Contains(text, want) {
			t.Errorf("for %q: %d, without %q: %s", at, status, want, text)
		}
	}
	for range 2 {
		if status, _, text := send("now", ""); status != http.StatusSeeOther {
			t.Fatalf("%d: %s", status, text)
		}
	}
	if status, _, text := send("now", other); status != http.StatusUnprocessableEntity || !strings.Contains(text, "the run daily:@now was triggered before") {
		t.Errorf("%d: %s", status, text)
	}
	if list, err := a.client.ListSlots(t.Context(), client.SlotFilter{Job: "daily"}); err != nil || len(list.Slots) != 2 {
		t.Errorf("%+v, %v", list.Slots, err)
	}
}

// The zone may have been changed in another tab since the form was shown.
func TestFormIsReadInTheZoneInWhichItWasShown(t *testing.T) {
	t.Parallel()
	a := newJobs(t)
	if _, markup, _ := a.get(t, "jobs/daily/trigger?zone=Asia/Tokyo"); !strings.Contains(markup, `<input type="hidden" name="zone" value="Asia/Tokyo">`) {
		t.Fatalf("the form has no zone: %s", markup)
	}
	status, _, text := a.order(t, "jobs/daily/trigger?zone=Europe/Berlin", url.Values{"key": {"k"}, "at": {"2126-11-21 07:00"}, "zone": {"Asia/Tokyo"}, "choose-zone": {"UTC"}, "choose-theme": {"dark"}})
	if status != http.StatusSeeOther {
		t.Fatalf("%d: %s", status, text)
	}
	if d, err := a.client.Slot(t.Context(), "daily:@k"); err != nil || d.Due.Format(time.RFC3339) != "2126-11-20T22:00:00Z" {
		t.Errorf("due at %v, %v", d.Due, err)
	}
}

func TestChoiceOfAZoneKeepsWhatWasTyped(t *testing.T) {
	t.Parallel()
	a := newJobs(t)
	typed := url.Values{"payload": {`{"month": `}, "at": {"2126-11-21 07:00"}, "key": {"k"}, "zone": {"UTC"}, "next": {"/jobs/daily/trigger"}, "choose-zone": {"Asia/Tokyo"}, "choose-theme": {"dark"}, "show": {"chosen"}}
	for path, status := range map[string]int{"preferences": http.StatusTemporaryRedirect, "jobs/daily/trigger": http.StatusOK} {
		got, to, text := a.order(t, path, typed)
		if got != status || path == "preferences" && to != "./jobs/daily/trigger" {
			t.Errorf("%s: %d %s", path, got, to)
		}
		for _, want := range []string{`{"month": `, "It starts at Thu 21 Nov 2126 07:00:00 JST, which is 2126-11-20T22:00:00Z"} {
			if path != "preferences" && !strings.Contains(text, want) {
				t.Errorf("%s without %q: %s", path, want, text)
			}
		}
	}
	if list, err := a.client.ListSlots(t.Context(), client.SlotFilter{Job: "daily"}); err != nil || len(list.Slots) > 0 {
		t.Errorf("the choice did something: %v, %v", list.Slots, err)
	}
}

// The same key and the same revision settle whether an order was carried out.
func TestFormIsKeptWhileTheServerDoesNotAnswer(t *testing.T) {
	t.Parallel()
	a := newJobs(t)
	site := pages.New(shell.Config{Client: a.client, Patience: 200 * time.Millisecond, Subscribe: func(context.Context) (<-chan client.Event, func(), error) {
		return nil, nil, errors.New("none")
	}})
	server := httptest.NewServer(site)
	defer server.Close()
	defer site.Close()
	a.nats.Stop()
	a.url = server.URL + "/"
	w, err := http.PostForm(a.url+"jobs/daily/trigger", url.Values{"payload": {`{"month": 11}`}, "at": {"2126-11-21 07:00"}, "key": {"k"}, "zone": {"UTC"}, "show": {"typed"}})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Body.Close()
	body, err := io.ReadAll(w.Body)
	if err != nil {
		t.Fatal(err)
	}
	text := string(body)
	for _, want := range []string{`name="payload" value="{&#34;month&#34;: 11}"`, `name="at" value="2126-11-21 07:00"`, `name="key" value="k"`, "does not answer", "<button>Trigger</button>"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q: %s", want, text)
		}
	}
}
