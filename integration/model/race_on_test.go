//go:build race

package model

// raceDetector says that the exploration, which has one goroutine and takes ten
// times as long under it, may be a smaller one.
const raceDetector = true
