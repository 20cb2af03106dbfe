package main

import (
	"context"
	"encoding/json"
	"log/slog"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"
)

// riverPeer is River, on PostgreSQL.
type riverPeer struct {
	url    string
	pool   *pgxpool.Pool
	client *river.Client[pgx.Tx]
}

type reportArgs struct {
	Data json.RawMessage `json:"data"`
}

func (reportArgs) Kind() string { return "report" }

type reportWorker struct {
	river.WorkerDefaults[reportArgs]
	handle func([]byte)
}

func (w *reportWorker) Work(_ context.Context, job *river.Job[reportArgs]) error {
	w.handle(job.Args.Data)
	return nil
}

func (p *riverPeer) name() string { return "River" }
func (p *riverPeer) settings() string {
	return "PostgreSQL as installed (fsync and synchronous_commit on); MaxWorkers 2000, FetchCooldown 2ms, FetchPollInterval 20ms, as \"river bench\" sets them; InsertManyFast in batches of 5000; the scheduler looks every 5s"
}

func (p *riverPeer) open(ctx context.Context, handle func([]byte)) (_ func() error, err error) {
	if p.pool, err = pgxpool.New(ctx, p.url); err != nil {
		return nil, err
	}
	driver := riverpgxv5.New(p.pool)
	migrator, err := rivermigrate.New(driver, nil)
	if err != nil {
		return nil, err
	}
	if _, err := migrator.Migrate(ctx, rivermigrate.DirectionUp, nil); err != nil {
		return nil, err
	}
	if _, err := p.pool.Exec(ctx, "TRUNCATE river_job"); err != nil {
		return nil, err
	}
	workers := river.NewWorkers()
	river.AddWorker(workers, &reportWorker{handle: handle})
	p.client, err = river.NewClient(driver, &river.Config{
		Queues:        map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: 2000}},
		FetchCooldown: 2 * time.Millisecond, FetchPollInterval: 20 * time.Millisecond,
		Workers: workers, Logger: slog.New(slog.DiscardHandler),
	})
	return func() error { p.pool.Close(); return nil }, err
}

func (p *riverPeer) enter(ctx context.Context, at time.Time, payloads [][]byte) error {
	const batch = 5000
	for part := range slices.Chunk(payloads, batch) {
		params := make([]river.InsertManyParams, len(part))
		for i, data := range part {
			params[i] = river.InsertManyParams{Args: reportArgs{data}, InsertOpts: &river.InsertOpts{ScheduledAt: at}}
		}
		if _, err := p.client.InsertManyFast(ctx, params); err != nil {
			return err
		}
	}
	return nil
}

func (p *riverPeer) work(ctx context.Context) error {
	if err := p.client.Start(context.WithoutCancel(ctx)); err != nil {
		return err
	}
	<-ctx.Done()
	stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), 30*time.Second)
	defer cancel()
	return p.client.Stop(stop)
}
