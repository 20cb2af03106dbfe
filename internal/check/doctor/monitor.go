package doctor

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"
)

const (
	monitorTimeout = 5 * time.Second
	maxVarz        = 1 << 20
)

// askMonitor asks the monitoring port of a nats-server, "http://host:8222", how it
// stores.
func askMonitor(ctx context.Context, url string) (Monitor, error) {
	ctx, cancel := context.WithTimeout(ctx, monitorTimeout)
	defer cancel()
	fail := func(err error) (Monitor, error) {
		return Monitor{}, fmt.Errorf("ask the monitoring port %s: %w", url, err)
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimSuffix(url, "/")+"/varz", nil)
	if err != nil {
		return fail(err)
	}
	transport := &http.Transport{Proxy: http.ProxyFromEnvironment}
	defer transport.CloseIdleConnections()
	answer, err := (&http.Client{Transport: transport}).Do(request)
	if err != nil {
		return fail(err)
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return fail(fmt.Errorf("it answers %s: is it the monitoring port of a nats-server?", answer.Status))
	}
	var varz struct {
		Name      string `json:"server_name"`
		Version   string `json:"version"`
		JetStream struct {
			Config *struct {
				SyncInterval time.Duration `json:"sync_interval"`
				SyncAlways   bool          `json:"sync_always"`
			} `json:"config"`
		} `json:"jetstream"`
	}
	if err := json.NewDecoder(io.LimitReader(answer.Body, maxVarz)).Decode(&varz); err != nil || varz.Name == "" {
		return fail(fmt.Errorf("its answer is not that of a nats-server"))
	}
	m := Monitor{Name: varz.Name, Version: varz.Version}
	if c := varz.JetStream.Config; c != nil {
		m.JetStream, m.SyncAlways, m.SyncInterval = true, c.SyncAlways, c.SyncInterval
	}
	return m, nil
}
