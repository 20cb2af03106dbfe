// Package browser tests the dashboard with a real Chromium on a real fleet. It opens every page in
// light and dark colours, on a wide screen and on a phone. It checks accessibility with axe-core, and
// that there are no errors in the console and no requests to other hosts.
//
// The tests skip if the machine has no Chromium. With CRONCE_TEST_SCREENSHOTS=DIR they write a picture
// of each page to the directory.
package browser
