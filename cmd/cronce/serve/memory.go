package serve

import (
	"runtime"
	"runtime/debug"
)

// GC percentages below the default of 100. gcLoading holds while the registry is loaded, so that less
// garbage lies between the values that stay. gcLargeHeap holds afterwards if the heap is larger than
// largeHeap, because the garbage may grow to this percentage of the heap.
const (
	gcLoading   = 50
	gcLargeHeap = 25
	largeHeap   = 128 << 20 // bytes
)

// limitMemory limits the memory of a process with a large registry, unless GOGC is set. Call
// loaded when the registry has been read.
func limitMemory(getenv func(string) string) (loaded func()) {
	if getenv("GOGC") != "" {
		return debug.FreeOSMemory
	}
	before := debug.SetGCPercent(gcLoading)
	return func() {
		debug.FreeOSMemory()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		if m.HeapAlloc > largeHeap {
			before = gcLargeHeap
		}
		debug.SetGCPercent(before)
	}
}
