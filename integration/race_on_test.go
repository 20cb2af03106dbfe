//go:build race && unix

package integration

// raceDetector says that the programs under test are built with it too.
const raceDetector = true
