package kv

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/cronce-io/cronce/job"
)

// Open finds the namespace on the broker, or creates it: first everything that
// is there is looked at, and a difference that matters is refused
// (job.ErrMismatch, naming both values and the command that mends it) before
// anything is created. Nothing that exists is ever updated here.
//
// It asks the broker until it is answered or ctx ends: a cluster that has just
// been started needs seconds for its first leader. When everything is there it
// costs one request for each of seven streams and one for the settings.
//
// The stream of timers is made with the rest, but a namespace without it is
// complete: it was made on a server that knew no message schedules. Setup adds it.
func Open(ctx context.Context, js jetstream.JetStream, o Options) (*Store, error) {
	s, err := newStore(ctx, js, o)
	if err != nil {
		return nil, err
	}
	for {
		inv, err := s.inspect(ctx)
		if err != nil {
			return nil, err
		}
		if err := s.accept(inv, o.Want); err != nil {
			return nil, err
		}
		switch {
		case inv.complete():
			s.settings, s.registry = inv.settings.WithDefaults(), inv.registry
			s.atomic = inv.streams[s.bucket("jobs").stream()].AllowAtomicPublish
			return s, nil
		case o.ReadOnly:
			return nil, s.notSetUp()
		}
		// Whoever comes first wins: the loser of a race looks again, and adopts
		// or refuses what the winner stored.
		_, err = s.create(ctx, &inv, inv.target(o.Want))
		switch {
		case errors.Is(err, job.ErrDenied) && len(inv.missing()) == 1 && !inv.stored:
			// As for the node of a fleet whose settings are about to be stored again.
			s.log.Warn("waiting for the settings of the namespace: none are stored, and this login may not store them", "namespace", s.namespace, "mend", s.setupCommand(), "error", err)
			if !wait(ctx, setupPause) {
				return nil, err
			}
		case errors.Is(err, job.ErrDenied):
			return nil, fmt.Errorf("namespace %q is not set up, and this login may not do that; who may: %s: %w", s.namespace, s.setupCommand(), err)
		case err != nil && !lostRace(err):
			return nil, err
		}
	}
}

func (s *Store) notSetUp() error {
	return fmt.Errorf("namespace %q is not set up on %s: %w: start a node (cronce run), or %s",
		s.namespace, s.link().connectedServer().address, job.ErrNotFound, s.setupCommand())
}

func lostRace(err error) bool {
	return errors.Is(err, job.ErrConflict) || hasCode(err, jetstream.JSErrCodeStreamNameInUse)
}

// inventory is what a namespace has on the broker.
type inventory struct {
	names    []string // of all streams it should have
	optional string   // the one it can do without: the server may not have known it when the rest was made
	streams  map[string]jetstream.StreamConfig
	stored   bool // settings are
	settings job.Settings
	revision uint64
	registry time.Time // when its bucket was created
}

func (i inventory) complete() bool { return len(i.missing()) == 0 }

// missing names, in words, what is not there and has to be.
func (i inventory) missing() (words []string) {
	for _, name := range i.names {
		if _, ok := i.streams[name]; !ok && name != i.optional {
			words = append(words, title(name))
		}
	}
	if !i.stored {
		words = append(words, "the settings")
	}
	return words
}

// target is what the namespace should be: want, over what is stored, over the
// defaults. Replicas may stay 0 when nothing exists that could tell.
func (i inventory) target(want job.Settings) job.Settings {
	set := overlay(i.settings, want)
	for _, name := range i.names {
		if found, ok := i.streams[name]; ok && set.Replicas == 0 {
			set.Replicas = found.Replicas
		}
	}
	return set.WithDefaults()
}

func (s *Store) differences(i inventory, set job.Settings) []difference {
	var all []difference
	for _, want := range layout(s.namespace, set, s.schedules()) {
		if found, ok := i.streams[want.Name]; ok {
			all = append(all, differences(found, want)...)
		}
	}
	return all
}

func (s *Store) inspect(ctx context.Context) (inventory, error) {
	inv := inventory{streams: map[string]jetstream.StreamConfig{}, optional: timerStream(s.namespace)}
	for _, want := range layout(s.namespace, job.Settings{}, true) {
		// Asked here, since by now a server has answered, which says its version.
		if want.Name == inv.optional && !s.schedules() {
			continue
		}
		inv.names = append(inv.names, want.Name)
		err := s.ask(ctx, "look for "+title(want.Name), s.api("STREAM.INFO."+want.Name), func(ctx context.Context) error {
			found, err := s.js.Stream(ctx, want.Name)
			if err == nil {
				inv.streams[want.Name] = found.CachedInfo().Config
				if want.Name == s.bucket("jobs").stream() {
					inv.registry = found.CachedInfo().Created
				}
			}
			return err
		})
		if err != nil && !errors.Is(err, jetstream.ErrStreamNotFound) {
			return inv, err
		}
	}
	if _, ok := inv.streams[s.bucket("state").stream()]; !ok {
		return inv, nil
	}
	var err error
	inv.settings, inv.revision, err = s.readSettings(ctx)
	inv.stored = err == nil
	if errors.Is(err, job.ErrNotFound) {
		err = nil
	}
	return inv, err
}

// accept refuses what does not fit.
func (s *Store) accept(inv inventory, want job.Settings) error {
	if found, wanted, flags := mismatch(inv.settings, want); inv.stored && len(found) > 0 {
		return fmt.Errorf("namespace %q: %w: %s is stored, %s is asked for: leave it out to adopt what is stored, or change it for every node: %s",
			s.namespace, job.ErrMismatch, strings.Join(found, ", "), strings.Join(wanted, ", "), s.setupCommand(flags...))
	}
	target := inv.target(want)
	if err := target.Validate(); err != nil {
		return fmt.Errorf("namespace %q: %w", s.namespace, err)
	}
	wrong := slices.DeleteFunc(s.differences(inv, target), func(d difference) bool { return d.tolerated })
	return s.refuse(wrong)
}

// refuse makes one error of differences: with the command that mends them, or
// what has to go when none does.
func (s *Store) refuse(all []difference) error {
	if len(all) == 0 {
		return nil
	}
	next := "mend it: " + s.setupCommand()
	text := make([]string, len(all))
	for i, d := range all {
		text[i] = d.String()
		if d.fixed {
			next = fmt.Sprintf("that cannot be changed in place: use another --namespace, or save what is in %s and remove it (%s)", d.where, removal(d.where))
		}
	}
	return fmt.Errorf("namespace %q: %w: %s: %s", s.namespace, job.ErrMismatch, strings.Join(text, "; "), next)
}

func removal(where string) string {
	kind, name, _ := strings.Cut(where, " ")
	if kind == "bucket" {
		return "nats kv del " + name
	}
	return "nats stream rm " + name
}

// create makes what is missing, by the settings that end up stored.
func (s *Store) create(ctx context.Context, inv *inventory, set job.Settings) (changes []string, err error) {
	for i, name := range inv.names {
		cfg := s.streamConfig(name, set)
		if _, ok := inv.streams[cfg.Name]; !ok {
			if err := s.createStream(ctx, &cfg); err != nil {
				return changes, err
			}
			inv.streams[cfg.Name] = cfg
			set.Replicas = cfg.Replicas
			changes = append(changes, fmt.Sprintf("created %s (replicas %d)", title(cfg.Name), cfg.Replicas))
		}
		// The settings come right after the bucket that holds them: what is made
		// by them is made once they are certain.
		if i == 0 && !inv.stored {
			if err := s.writeSettings(ctx, set, inv.revision); err != nil {
				return changes, err
			}
			changes = append(changes, "stored the settings")
		}
	}
	return changes, nil
}

func (s *Store) streamConfig(name string, set job.Settings) jetstream.StreamConfig {
	all := layout(s.namespace, set, s.schedules())
	return all[slices.IndexFunc(all, func(c jetstream.StreamConfig) bool { return c.Name == name })]
}

const (
	clusterReplicas = 3

	// peerWait is how long a young cluster is given to learn of its servers, and a
	// stream of its replicas.
	peerWait = 5 * time.Second
)

// createStream creates it; with 0 replicas, on three servers if there are so
// many, else on one.
func (s *Store) createStream(ctx context.Context, cfg *jetstream.StreamConfig) error {
	choose, began, pause := cfg.Replicas == 0, time.Now(), newPause()
	if choose {
		cfg.Replicas = clusterReplicas
	}
	for {
		err := s.ask(ctx, "create "+title(cfg.Name), s.api("STREAM.CREATE."+cfg.Name), func(ctx context.Context) error {
			_, err := s.js.CreateStream(ctx, *cfg)
			return err
		})
		switch {
		case err == nil || !choose || !hasCode(err, codeNoReplicas, codeNoPeers):
			return err
		case hasCode(err, codeNoPeers) && time.Since(began) < peerWait:
			if !wait(ctx, pause.NextBackOff()) {
				return err
			}
		default:
			if hasCode(err, codeNoPeers) {
				s.log.Warn("fewer than three servers take part in JetStream: everything is stored once", "reason", err, "later", s.setupCommand("--replicas 3"))
			}
			choose, cfg.Replicas = false, 1
		}
	}
}

// apiTimeout bounds one request to the JetStream API: to create a stream on
// three servers takes some.
const apiTimeout = 8 * time.Second

// ask repeats a request to the JetStream API until it is answered, ctx ends or the
// server says that it does not permit it: subject is that of the request, or how it
// begins. The first attempts are short, since most of
// what is not answered at once was lost with a connection or a leader; and every
// request may be made twice.
func (s *Store) ask(ctx context.Context, what, subject string, request func(context.Context) error) error {
	began, pause := time.Now(), newPause()
	for limit := attemptTimeout; ; limit = min(2*limit, apiTimeout) {
		attempted := time.Now()
		err := s.because(subject, attempted, within(ctx, limit, request))
		switch {
		case err == nil:
			return nil
		case hasCode(err, codeNoResources) && time.Since(began) < peerWait && wait(ctx, pause.NextBackOff()):
			// A stream that was just given replicas has no servers yet for its consumers.
		case errors.Is(err, nats.ErrNoResponders), errors.Is(err, jetstream.ErrJetStreamNotEnabled), errors.Is(err, jetstream.ErrJetStreamNotEnabledForAccount):
			return fmt.Errorf("%s on %s: JetStream is not enabled there, or not for this account: start nats-server with -js: %w",
				what, s.link().connectedServer().address, err)
		case classify(err) != unanswered:
			return fmt.Errorf("%s: %w", what, err)
		case errors.Is(err, job.ErrDenied):
			return fmt.Errorf("%s: %w", what, err)
		case !wait(ctx, pause.NextBackOff()):
			return fmt.Errorf("%s: %w (after %v): %w", what, job.ErrUnknown, time.Since(began).Round(time.Millisecond), err)
		}
	}
}

// within calls request with a context that ends after limit. When ctx ends it returns
// also if the request waits for the connection's lock: the request then ends by itself, and
// what it finds is not looked at. Until then there is one request at a time.
func within(ctx context.Context, limit time.Duration, request func(context.Context) error) error {
	done := make(chan error, 1)
	go func() {
		attempt, cancel := context.WithTimeout(ctx, limit)
		defer cancel()
		done <- request(attempt)
	}()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
	}
	late := time.NewTimer(attemptTimeout / 10) // the client returns within a moment, unless it waits for the lock
	defer late.Stop()
	select {
	case err := <-done:
		return err
	case <-late.C:
		return ctx.Err()
	}
}
