//go:build race && unix

package integration

// raceDetector is true if the tests are built with the race detector. The programs under test are then, too.
const raceDetector = true
