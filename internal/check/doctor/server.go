package doctor

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/cronce-io/cronce/internal/broker/layout"
	"github.com/cronce-io/cronce/internal/codec"
)

// embedded is the prefix of the names of servers that cronce embeds. They sync every write.
const embedded = "cronce-"

// Monitor is the answer of a monitoring port.
type Monitor struct {
	Name, Version string

	// InMessages is how many messages the server has received.
	InMessages int64

	// JetStream reports whether the server has JetStream enabled.
	JetStream bool

	// SyncAlways reports whether the server syncs each write. SyncInterval is how often it syncs
	// otherwise. Zero: defaultSync.
	SyncAlways   bool
	SyncInterval time.Duration
}

// servers checks the servers that store the streams.
func (c *check) servers() {
	versions := map[string]string{c.Survey.Server: c.Survey.Version}
	var synced []string
	for _, m := range c.Monitors {
		versions[m.Name] = m.Version
		synced = append(synced, m.Name)
		if m.JetStream && !m.SyncAlways {
			c.add(Warning, "sync", "server "+m.Name, fmt.Sprintf("it syncs its writes to the disk only every %v", cmp.Or(m.SyncInterval, defaultSync)),
				"a power failure, or a crash of its operating system, loses acknowledged writes: claims and outcomes too, so slots run again",
				"jetstream { sync_interval: always } in its configuration, and restart it")
		}
	}
	if most := c.Survey.MaxPayload; most > 0 && most < layout.EnoughPayload {
		c.add(Warning, "max_payload", "server "+c.Survey.Server, fmt.Sprintf("it accepts messages of up to %d bytes; %d are enough for every slot", most, layout.EnoughPayload),
			"larger payloads are refused, and outputs and errors are cut to fit", "raise max_payload in its configuration, and reload it")
	}
	var unknown []string
	for _, name := range c.streamServers() {
		if !slices.Contains(synced, name) && !strings.HasPrefix(name, embedded) {
			unknown = append(unknown, name)
		}
	}
	if len(unknown) > 0 {
		c.add(Note, "sync", "server "+few(unknown), "whether it syncs its writes cannot be known with these permissions",
			"by default it does not, and a power failure loses acknowledged writes", "ask its monitoring port: "+c.cronce("doctor --monitor http://HOST:8222"))
	}
	for _, name := range slices.Sorted(maps.Keys(versions)) {
		if known := badVersion(versions[name]); known != "" {
			c.add(Warning, "version", "server "+name, "nats-server "+versions[name]+": "+known,
				"every promise depends on acknowledged writes", "upgrade it to the newest release of nats-server")
		}
	}
}

// defaultSync is how often a server syncs by default.
const defaultSync = 2 * time.Minute

// badVersion returns the known problem of a version of nats-server. Versions before 2.11 are
// refused elsewhere.
func badVersion(version string) string {
	var major, minor, patch int
	if _, err := fmt.Sscanf(strings.TrimPrefix(version, "v"), "%d.%d.%d", &major, &minor, &patch); err != nil {
		return ""
	}
	if major == 2 && minor < 14 {
		return "before 2.14 a crash or a partition could lose acknowledged writes (nats-server #7566, #7580, #7594, #7955; jepsen.io/analyses/nats-2.12.1)"
	}
	return ""
}

const (
	monitorTimeout = 5 * time.Second
	maxVarz        = 1 << 20
)

// AskMonitor asks the monitoring port of a nats-server, such as "http://host:8222", for the server's
// name and version, and how it syncs its writes. Its errors do not show the login in the address.
func AskMonitor(ctx context.Context, address string) (Monitor, error) {
	ctx, cancel := context.WithTimeout(ctx, monitorTimeout)
	defer cancel()
	fail := func(err error) (Monitor, error) {
		if about, ok := errors.AsType[*url.Error](err); ok {
			err = about.Err // the rest of the text repeats the address
		}
		return Monitor{}, fmt.Errorf("ask the monitoring port %s: %w", codec.WithoutLogin(address), err)
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimSuffix(address, "/")+"/varz", nil)
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
		return fail(fmt.Errorf("answered %s: is it the monitoring port of a nats-server?", answer.Status))
	}
	var varz struct {
		Name      string `json:"server_name"`
		Version   string `json:"version"`
		InMsgs    int64  `json:"in_msgs"`
		JetStream struct {
			Config *struct {
				SyncInterval time.Duration `json:"sync_interval"`
				SyncAlways   bool          `json:"sync_always"`
			} `json:"config"`
		} `json:"jetstream"`
	}
	if err := json.NewDecoder(io.LimitReader(answer.Body, maxVarz)).Decode(&varz); err != nil || varz.Name == "" {
		return fail(fmt.Errorf("the answer is not that of a nats-server"))
	}
	m := Monitor{Name: varz.Name, Version: varz.Version, InMessages: varz.InMsgs}
	if c := varz.JetStream.Config; c != nil {
		m.JetStream, m.SyncAlways, m.SyncInterval = true, c.SyncAlways, c.SyncInterval
	}
	return m, nil
}
