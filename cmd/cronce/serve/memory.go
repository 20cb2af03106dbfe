package serve

import (
	"runtime"
	"runtime/debug"
)

// GC percentages. While the registry is loaded a lower one avoids holes between values that
// stay. Afterwards a lower one is used if the heap is large: with the default of 100 the
// process would keep as much memory again.
const (
	garbageLoading = 50
	garbageMuch    = 25
	muchInUse      = 128 << 20 // bytes
)

// collectMore limits the memory of a process with a large registry, unless GOGC is set. Call
// loaded when the registry has been read.
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
