// Package version knows the version of this module in the running program.
package version

import "runtime/debug"

// Module returns the version of this module, or "unknown".
func Module() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	const path = "github.com/cronce-io/cronce"
	for _, dep := range append(info.Deps, &info.Main) {
		if dep.Path == path && dep.Version != "" {
			return dep.Version
		}
	}
	return "unknown"
}
