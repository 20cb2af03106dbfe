package space

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/cronce-io/cronce/internal/broker/layout"
	"github.com/cronce-io/cronce/internal/broker/wire"
	"github.com/cronce-io/cronce/job"
)

// Open finds the namespace on the broker, or creates it. It first inspects everything
// that exists. If it finds a difference that matters, it creates nothing. The error then wraps
// job.ErrMismatch, and names both values and the command that mends it. Open never
// updates what exists.
//
// Open retries until the broker answers or ctx ends: a new cluster needs seconds to
// elect its first leader. If the namespace is complete, Open sends one request for each
// of seven streams and one for the settings.
//
// Open creates the stream of timers with the rest. A namespace without it is complete
// too, because a server without message schedules cannot have it. Setup adds it later.
func Open(ctx context.Context, js jetstream.JetStream, o Options) (*Space, error) {
	s, err := newSpace(ctx, js, o)
	if err != nil {
		return nil, err
	}
	if o.ReadOnly {
		s.learnLogin(ctx)
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
		case len(inv.missing()) == 0:
			s.settings, s.registry = inv.settings.WithDefaults(), inv.registry
			for name, cfg := range inv.streams {
				s.atomic[name] = cfg.AllowAtomicPublish
			}
			return s, nil
		case o.ReadOnly:
			if len(inv.streams) > 0 {
				return nil, fmt.Errorf("namespace %q on %s lacks %s: %w: restore what is missing, or create it without its content: %s",
					s.Namespace, s.Link().ConnectedServer().Address, strings.Join(inv.missing(), ", "), job.ErrNotFound, s.SetupCommand())
			}
			return nil, s.notSetUp()
		}
		// The first creator wins. The loser of a race inspects again, and adopts or refuses
		// what the winner stored.
		_, err = s.create(ctx, &inv, inv.target(o.Want))
		switch {
		case errors.Is(err, job.ErrDenied) && len(inv.missing()) == 1 && !inv.stored:
			// Another node of the fleet may be about to store the settings again.
			s.Log.Warn("waiting for the settings of the namespace: none are stored, and this login may not store them", "namespace", s.Namespace, "fix", s.SetupCommand(), "error", err)
			if !wire.Wait(ctx, setupPause) {
				return nil, err
			}
		case errors.Is(err, job.ErrDenied):
			return nil, fmt.Errorf("namespace %q is not set up, and this login may not do that; with a login that may, run: %s: %w", s.Namespace, s.SetupCommand(), err)
		case err != nil && !lostRace(err):
			return nil, err
		}
	}
}

// setupPause is the pause before Open checks again whether another login has stored the settings.
const setupPause = 2 * time.Second

// loginWait bounds the wait for the permissions of the login. A server answers at once.
const loginWait = time.Second

// learnLogin asks the server for the permissions of this login, so that this process does not send
// requests that the server denies. Without an answer, each read finds out by itself. A login with a
// role of package layout has an inbox prefix of its own. With the default prefix, learnLogin does
// not ask: the server may deny even this request.
func (s *Space) learnLogin(ctx context.Context) {
	if prefix := s.Conn().Opts.InboxPrefix; prefix == "" || prefix == strings.TrimSuffix(nats.InboxPrefix, ".") {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, loginWait)
	defer cancel()
	login, err := s.Permissions(ctx)
	if err != nil {
		return
	}
	s.login = login
	for _, stream := range layout.Streams(s.Namespace) {
		if !s.login.MayPublish(s.API("STREAM.MSG.GET." + stream)) {
			s.ReadDirectly(stream)
		}
	}
}

// maxForeignAnswers bounds the answers of other servers that Permissions takes for a reason to ask again.
const maxForeignAnswers = 10

// Permissions asks the connected server what the login may do. A server at the other end of a leaf node's
// connection answers too, with what that connection may do. If its answer comes first, Permissions asks
// again. A server without a system account never answers: if only others do, the error wraps
// job.ErrUnknown.
func (s *Space) Permissions(ctx context.Context) (layout.Permissions, error) {
	pause := wire.NewBackoff()
	for range maxForeignAnswers {
		reply, err := s.Request(ctx, &nats.Msg{Subject: layout.PermissionsSubject})
		if err != nil {
			return layout.Permissions{}, err
		}
		login, server, err := layout.ParsePermissions(reply.Data)
		if err != nil || server == s.Conn().ConnectedServerId() {
			return login, err
		}
		if !wire.Wait(ctx, pause.NextBackOff()) {
			return layout.Permissions{}, context.Cause(ctx)
		}
	}
	return layout.Permissions{}, fmt.Errorf("%w: only servers behind the connected one answered", job.ErrUnknown)
}

// notSetUp returns the error for a namespace that is not set up completely.
func (s *Space) notSetUp() error {
	return fmt.Errorf("namespace %q is not set up on %s: %w: start a node (cronce run), or %s",
		s.Namespace, s.Link().ConnectedServer().Address, job.ErrNotFound, s.SetupCommand())
}

// lostRace reports whether another process created the same thing first.
func lostRace(err error) bool {
	return errors.Is(err, job.ErrConflict) || wire.HasCode(err, jetstream.JSErrCodeStreamNameInUse)
}

// inventory is what a namespace has on the broker.
type inventory struct {
	names    []string // of all streams that it should have
	optional string   // the stream of timers, which an older server cannot have
	streams  map[string]jetstream.StreamConfig
	stored   bool // whether settings are stored
	settings job.Settings
	revision uint64
	registry time.Time // creation time of the registry's bucket
}

// missing returns the titles of what is required and does not exist.
func (i inventory) missing() (titles []string) {
	for _, name := range i.names {
		if _, ok := i.streams[name]; !ok && name != i.optional {
			titles = append(titles, layout.Title(name))
		}
	}
	if !i.stored {
		titles = append(titles, "the settings")
	}
	return titles
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

// differences returns how the existing streams differ from those that the settings require.
func (s *Space) differences(i inventory, set job.Settings) []layout.Difference {
	var all []layout.Difference
	for _, want := range layout.Configs(s.Namespace, set, s.Schedules()) {
		if found, ok := i.streams[want.Name]; ok {
			all = append(all, layout.Differences(found, want)...)
		}
	}
	return all
}

// inspect lists what exists of the namespace.
func (s *Space) inspect(ctx context.Context) (inventory, error) {
	inv := inventory{streams: map[string]jetstream.StreamConfig{}, optional: layout.TimerStream(s.Namespace)}
	for _, want := range layout.Configs(s.Namespace, job.Settings{}, true) {
		// Check the version here: a server has answered by now, so the version is known.
		if want.Name == inv.optional && !s.Schedules() {
			continue
		}
		inv.names = append(inv.names, want.Name)
		info, err := s.StreamInfo(ctx, "look for "+layout.Title(want.Name), want.Name)
		switch {
		case err == nil:
			inv.streams[want.Name] = info.Config
			if want.Name == s.Bucket("jobs").Stream {
				inv.registry = info.Created
			}
		case !errors.Is(err, jetstream.ErrStreamNotFound):
			return inv, err
		}
	}
	if _, ok := inv.streams[s.Bucket("state").Stream]; !ok {
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

// accept returns an error if the stored settings or an existing stream do not match what is wanted.
func (s *Space) accept(inv inventory, want job.Settings) error {
	if found, wanted, flags := mismatch(inv.settings, want); inv.stored && len(found) > 0 {
		return fmt.Errorf("namespace %q: %w: %s is stored, %s is asked for: leave it out to adopt what is stored, or change it for every node: %s",
			s.Namespace, job.ErrMismatch, strings.Join(found, ", "), strings.Join(wanted, ", "), s.SetupCommand(flags...))
	}
	target := inv.target(want)
	if err := target.Validate(); err != nil {
		return fmt.Errorf("namespace %q: %w", s.Namespace, err)
	}
	wrong := slices.DeleteFunc(s.differences(inv, target), func(d layout.Difference) bool { return d.Tolerated })
	return s.refuse(wrong)
}

// refuse combines the differences into one error. The error names the command that
// mends them, or what must be removed if no command does.
func (s *Space) refuse(all []layout.Difference) error {
	if len(all) == 0 {
		return nil
	}
	next := "mend it: " + s.SetupCommand()
	text := make([]string, len(all))
	for i, d := range all {
		text[i] = d.String()
		if d.Remove != "" {
			next = fmt.Sprintf("that cannot be changed in place: use another --namespace, or save what is in %s and remove it (%s)", d.Where, d.Remove)
		}
	}
	return fmt.Errorf("namespace %q: %w: %s: %s", s.Namespace, job.ErrMismatch, strings.Join(text, "; "), next)
}

// create creates the missing streams, and stores the settings if none are stored.
func (s *Space) create(ctx context.Context, inv *inventory, set job.Settings) (changes []string, err error) {
	for i, name := range inv.names {
		cfg := s.streamConfig(name, set)
		if _, ok := inv.streams[cfg.Name]; !ok {
			if err := s.createStream(ctx, &cfg); err != nil {
				return changes, s.needsAccount(err, len(inv.names))
			}
			inv.streams[cfg.Name] = cfg
			set.Replicas = cfg.Replicas
			changes = append(changes, fmt.Sprintf("created %s (replicas %d)", layout.Title(cfg.Name), cfg.Replicas))
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

func (s *Space) streamConfig(name string, set job.Settings) jetstream.StreamConfig {
	all := layout.Configs(s.Namespace, set, s.Schedules())
	return all[slices.IndexFunc(all, func(c jetstream.StreamConfig) bool { return c.Name == name })]
}

const clusterReplicas = 3

// createStream creates the stream. If the config has 0 replicas, it chooses clusterReplicas if the
// cluster has enough servers, else one.
func (s *Space) createStream(ctx context.Context, cfg *jetstream.StreamConfig) error {
	choose, began, pause := cfg.Replicas == 0, time.Now(), wire.NewBackoff()
	if choose {
		cfg.Replicas = clusterReplicas
	}
	for {
		err := s.Ask(ctx, "create "+layout.Title(cfg.Name), s.API("STREAM.CREATE."+cfg.Name), func(ctx context.Context) error {
			_, err := s.JS.CreateStream(ctx, *cfg)
			return err
		})
		switch {
		case err == nil || !choose || !wire.HasCode(err, wire.CodeNoReplicas, wire.CodeNoPeers):
			return s.needsServers(err, cfg.Replicas)
		case wire.HasCode(err, wire.CodeNoPeers) && time.Since(began) < wire.PeerWait:
			if !wire.Wait(ctx, pause.NextBackOff()) {
				return err
			}
		default:
			if wire.HasCode(err, wire.CodeNoPeers) {
				s.Log.Warn("fewer than three servers take part in JetStream: everything is stored once", "error", err, "later", s.SetupCommand("--replicas 3"))
			}
			choose, cfg.Replicas = false, 1
		}
	}
}

// needsAccount explains the refusal of a stream by a limit of the account. streams is how many streams
// the namespace has.
func (s *Space) needsAccount(err error, streams int) error {
	switch next := s.SetupCommand(); {
	case wire.HasCode(err, wire.CodeMaxStreams):
		return fmt.Errorf("a namespace needs %d streams, and the NATS account may have no more: raise its limit (max_streams), then %s: %w", streams, next, err)
	case wire.HasCode(err, wire.CodeMaxBytesRequired):
		return fmt.Errorf("the NATS account requires max_bytes for each stream (max_bytes_required), and the streams of a namespace have none: use an account without that requirement, or ask those who run the server to switch it off, then %s: %w", next, err)
	default:
		return err
	}
}

// needsServers explains the refusal of more replicas than there are servers.
func (s *Space) needsServers(err error, replicas int) error {
	if replicas < 2 || !wire.HasCode(err, wire.CodeNoReplicas, wire.CodeNoPeers) {
		return err
	}
	return fmt.Errorf("%d replicas need as many servers in one cluster, all with JetStream: add servers, or use %q: %w", replicas, s.SetupCommand("--replicas 1"), err)
}
