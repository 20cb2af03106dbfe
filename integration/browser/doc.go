// Package browser tests the dashboard with a real Chromium on a real fleet: every page in light and
// dark, wide and on a phone; accessibility with axe-core; no error in the console; no request to any other host.
//
// The tests skip if the machine has no Chromium. With CRONCE_TEST_SCREENSHOTS=DIR they write a picture
// of each page to the directory.
package browser
