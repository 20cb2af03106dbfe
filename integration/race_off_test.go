//go:build !race && unix

package integration

const raceDetector = false
