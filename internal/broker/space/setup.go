package space

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/cronce-io/cronce/internal/broker/layout"
	"github.com/cronce-io/cronce/internal/broker/wire"
	"github.com/cronce-io/cronce/internal/codec"
	"github.com/cronce-io/cronce/job"
)

// Setup creates the namespace, or changes it to o.Want, and returns what it changed.
// Zero fields keep what is stored. Setup does not update what already matches, because an
// update that changes nothing can make the server drop delayed messages. If the server
// cannot change a field of a stream, Setup changes nothing and returns job.ErrMismatch. The
// error is the same for a field of a queue, but the streams are changed by then.
//
// Running nodes keep the settings that they started with, and log that they differ.
// Restart them afterwards. To shorten a retention or a lease, stop them first.
func Setup(ctx context.Context, js jetstream.JetStream, o Options) (changes []string, err error) {
	s, err := newSpace(ctx, js, o)
	if err != nil {
		return nil, err
	}
	inv, err := s.inspect(ctx)
	if err != nil {
		return nil, err
	}
	target := inv.target(o.Want)
	if err := target.Validate(); err != nil {
		return nil, fmt.Errorf("namespace %q: %w", s.Namespace, err)
	}
	if err := codec.ValidateName("queue", o.Queues...); err != nil {
		return nil, err
	}
	wrong := s.differences(inv, target)
	for _, d := range wrong {
		if d.Remove != "" {
			return nil, s.refuse(wrong)
		}
	}
	// Records must outlive the horizon at every moment (invariant 7). So a longer retention
	// is set on the ledger before it is stored in the settings, and a shorter one after.
	shorter := inv.stored && target.Retention < inv.settings.Retention
	steps := []func(context.Context, *inventory, job.Settings) ([]string, error){
		s.create, s.update, s.updateQueues, s.changeSettings,
	}
	if shorter {
		steps = []func(context.Context, *inventory, job.Settings) ([]string, error){
			s.create, s.changeSettings, s.update, s.updateQueues,
		}
	}
	steps = append(steps, func(ctx context.Context, inv *inventory, target job.Settings) ([]string, error) {
		return s.createQueues(ctx, inv, target, o.Queues)
	}, func(ctx context.Context, _ *inventory, _ job.Settings) ([]string, error) {
		return s.createAlerts(ctx)
	})
	for _, step := range steps {
		done, err := step(ctx, &inv, target)
		changes = append(changes, done...)
		if err != nil {
			return changes, err
		}
	}
	return changes, nil
}

func (s *Space) changeSettings(ctx context.Context, inv *inventory, target job.Settings) ([]string, error) {
	found, wanted, _ := mismatch(inv.settings, target)
	if !inv.stored || len(found) == 0 {
		return nil, nil
	}
	if err := s.writeSettings(ctx, target, inv.revision); err != nil {
		return nil, err
	}
	return []string{fmt.Sprintf("changed the settings: %s instead of %s", strings.Join(wanted, ", "), strings.Join(found, ", "))}, nil
}

// update corrects existing streams. It does not change fields that the layout does not set.
func (s *Space) update(ctx context.Context, inv *inventory, target job.Settings) (changes []string, err error) {
	for _, name := range inv.names {
		want, cfg := s.streamConfig(name, target), inv.streams[name]
		wrong := layout.Differences(cfg, want)
		if len(wrong) == 0 {
			continue
		}
		for _, d := range wrong {
			d.Mend(&cfg)
			changes = append(changes, fmt.Sprintf("changed %s: %s %s instead of %s", d.Where, d.Field, d.Want, d.Found))
		}
		err := s.Ask(ctx, "change "+layout.Title(cfg.Name), s.API("STREAM.UPDATE."+cfg.Name), func(ctx context.Context) error {
			_, err := s.JS.UpdateStream(ctx, cfg)
			return err
		})
		if err != nil {
			return changes[:len(changes)-len(wrong)], s.needsServers(err, cfg.Replicas)
		}
	}
	return changes, nil
}

// SetUpAgain creates the missing parts of a namespace that was open before, for example
// after the broker lost its store or an operator removed a stream. It uses the stored
// settings. If none are stored, it stores the settings of this Space. It returns what it
// created, and when the registry was created. If it cannot create a missing part, the
// error wraps wire.ErrGone and names the part. It also wraps job.ErrDenied if this login may
// not create that part.
func (s *Space) SetUpAgain(ctx context.Context) (changes []string, registry time.Time, err error) {
	for {
		inv, err := s.inspect(ctx)
		missing := inv.missing()
		if err != nil || len(missing) == 0 {
			return changes, inv.registry, err
		}
		set := s.settings
		if inv.stored {
			set = inv.target(job.Settings{})
		}
		done, err := s.create(ctx, &inv, set)
		changes = append(changes, done...)
		if err != nil && !lostRace(err) {
			return changes, time.Time{}, fmt.Errorf("%w: namespace %q lacks %s: %w", wire.ErrGone, s.Namespace, strings.Join(missing, ", "), err)
		}
	}
}

// Remove deletes the streams and buckets of the namespace. It does not delete the consumers on other
// streams whose messages start jobs. It is for namespaces that were created for a trial or a
// measurement. A missing stream is not an error.
func Remove(ctx context.Context, js jetstream.JetStream, namespace string) error {
	s, err := newSpace(ctx, js, Options{Namespace: namespace})
	if err != nil {
		return err
	}
	failed := s.removeAll(ctx)
	// A process that was interrupted while it created a stream may have left its request in
	// flight. So remove everything a second time.
	if failed == nil && wire.Wait(ctx, settleFor) {
		failed = s.removeAll(ctx)
	}
	return failed
}

// settleFor is how long a request may stay in flight after its sender has ended.
const settleFor = 250 * time.Millisecond

func (s *Space) removeAll(ctx context.Context) error {
	var failed []error
	for _, cfg := range layout.Configs(s.Namespace, job.Settings{}, true) {
		err := s.Ask(ctx, "remove "+layout.Title(cfg.Name), s.API("STREAM.DELETE."+cfg.Name), func(ctx context.Context) error {
			return s.JS.DeleteStream(ctx, cfg.Name)
		})
		if err != nil && !errors.Is(err, jetstream.ErrStreamNotFound) {
			failed = append(failed, err)
		}
	}
	return errors.Join(failed...)
}
