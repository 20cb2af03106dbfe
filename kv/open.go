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

// Open finds the namespace on the broker, or creates it. It first inspects everything
// that exists. If it finds a difference that matters, it creates nothing and returns
// job.ErrMismatch, which names both values and the command that mends it. Open never
// updates what exists.
//
// Open retries until the broker answers or ctx ends: a new cluster needs seconds to
// elect its first leader. If the namespace is complete, Open sends one request for each
// of seven streams and one for the settings.
//
// Open creates the stream of timers with the rest. A namespace without it is complete
// too, because a server without message schedules cannot have it. Setup adds it later.
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
		// The first creator wins. The loser of a race inspects again, and adopts or refuses
		// what the winner stored.
		_, err = s.create(ctx, &inv, inv.target(o.Want))
		switch {
		case errors.Is(err, job.ErrDenied) && len(inv.missing()) == 1 && !inv.stored:
			// Another node of the fleet may be about to store the settings again.
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

// inventory lists what a namespace has on the broker.
type inventory struct {
	names    []string // of all streams that it should have
	optional string   // the stream that it can do without: an older server cannot have it
	streams  map[string]jetstream.StreamConfig
	stored   bool // whether settings are stored
	settings job.Settings
	revision uint64
	registry time.Time // creation time of the registry's bucket
}

func (i inventory) complete() bool { return len(i.missing()) == 0 }

// missing describes in words what is required and does not exist.
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

// target merges the settings: want overrides what is stored, which overrides the
// defaults. Replicas may stay 0 if no existing stream gives a value.
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
		// Check the version here: a server has answered by now, so the version is known.
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

// accept refuses settings or streams that do not match.
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

// refuse combines the differences into one error. The error names the command that
// mends them, or what must be removed if no command does.
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

// create creates what is missing, with the settings that end up stored.
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
		// Store the settings right after the bucket that holds them. The other streams are
		// created once the settings are certain.
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

	// peerWait is how long a new cluster may take to discover its servers, and a new
	// stream to place its replicas.
	peerWait = 5 * time.Second
)

// createStream creates the stream. If the config has 0 replicas, it chooses three
// where the cluster has enough servers, else one.
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

// apiTimeout bounds one request to the JetStream API. Creating a stream on three
// servers takes time.
const apiTimeout = 8 * time.Second

// ask repeats a request to the JetStream API until the broker answers, ctx ends or the
// server does not permit it. subject is the subject of the request, or its prefix. The
// first attempts are short, because most unanswered requests were lost with a
// connection or a leader. Every request must be safe to repeat.
func (s *Store) ask(ctx context.Context, what, subject string, request func(context.Context) error) error {
	began, pause := time.Now(), newPause()
	for limit := attemptTimeout; ; limit = min(2*limit, apiTimeout) {
		attempted := time.Now()
		err := s.because(subject, attempted, within(ctx, limit, request))
		switch {
		case err == nil:
			return nil
		case hasCode(err, codeNoResources) && time.Since(began) < peerWait && wait(ctx, pause.NextBackOff()):
			// The server has not yet placed consumers for a stream that was just given replicas.
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

// within calls request with a context that ends after limit. If ctx ends while the
// request waits for the connection's lock, within returns soon. The request then ends by
// itself and its result is dropped. Until ctx ends, only one request runs at a time.
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
