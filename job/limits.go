package job

import (
	"time"

	"github.com/cronce-io/cronce/internal/text/alertbody"
)

// The defaults of empty fields. Those of a worker are in package consumer.
const (
	DefaultNamespace = "cronce"

	DefaultQueue      = "default"   // Job.Queue
	DefaultAttempts   = 3           // Retry.Attempts
	DefaultBackoff    = time.Second // Retry.Backoff
	DefaultMaxBackoff = time.Minute // Retry.MaxBackoff
	DefaultCatchUpMax = 100         // CatchUp.Max
	DefaultOutput     = 4 << 10     // Job.Output, in bytes

	DefaultLease      = 20 * time.Second   // Settings.Lease
	DefaultHorizon    = 24 * time.Hour     // Settings.Horizon
	DefaultRetention  = 7 * 24 * time.Hour // Settings.Retention
	DefaultDuplicates = 2 * time.Minute    // Settings.Duplicates
)

// The largest values of fields.
const (
	MaxPayload     = 256 << 10      // Job.Payload, in bytes
	MaxOutput      = 64 << 10       // Job.Output, in bytes
	MaxResult      = 64 << 10       // the JSON of Run.SetResult, in bytes
	MaxSpread      = 24 * time.Hour // Job.Spread
	MaxAfter       = 32             // jobs in Job.After
	MaxShards      = 256            // Job.Shards
	MaxConcurrency = 1000           // Job.Concurrency
	MaxAttempts    = 1000           // Retry.Attempts
	MaxCatchUp     = 1000           // CatchUp.Max
	MaxToken       = 128            // Slot.Token, in bytes

	MaxAlertHeaders  = 20                    // AlertHTTP.Headers
	MaxAlertTemplate = alertbody.MaxTemplate // Alert.Template, in bytes: 8 KiB
	MaxLateAfter     = 24 * time.Hour        // Job.LateAfter
	MaxHeartbeatAge  = 10 * time.Minute      // Job.Heartbeat is not called for an older success

	MaxLease = 24 * time.Hour // Settings.Lease
)

// AlertEnv is the prefix of every environment variable that an alert may name. Without
// this rule, a login that may write the registry could have any secret of a node sent to an
// address of its choice.
const AlertEnv = "CRONCE_ALERT_"
