package serve

import (
	"runtime"
	"runtime/debug"
)

// How much garbage there may be, in percent of what is in use, before it is collected:
// while the registry is read, since half of what is garbage then leaves holes between
// what stays, and afterwards, where much is in use and the default of as much again
// would be kept of the machine for good.
const (
	garbageLoading = 50
	garbageMuch    = 25
	muchInUse      = 128 << 20 // bytes
)

// collectMore keeps a process with a large registry small, unless GOGC says how it is
// to be. loaded is to be called when the registry was read.
func collectMore(getenv func(string) string) (loaded func()) {
	if getenv("GOGC") != "" {
		return debug.FreeOSMemory
	}
	before := debug.SetGCPercent(garbageLoading)
	return func() {
		debug.FreeOSMemory()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		if m.HeapAlloc > muchInUse {
			before = garbageMuch
		}
		debug.SetGCPercent(before)
	}
}
