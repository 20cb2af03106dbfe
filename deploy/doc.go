// Package deploy holds what operators install besides the binary: units for systemd, a Helm chart
// and manifests for Kubernetes, a fleet for Compose, rules for Prometheus, a dashboard for Grafana,
// and the files of packages and images. It has no code, only tests of those files. Tests that need
// the libraries of Helm, Kubernetes and Compose are in integration/deploy, a separate module.
package deploy
