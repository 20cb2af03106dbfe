//go:build race

package model

// raceDetector makes the explorations smaller. They have one goroutine each, and take ten times as long
// with the race detector.
const raceDetector = true
