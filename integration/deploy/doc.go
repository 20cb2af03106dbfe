// Package deploy tests the Helm chart, the plain manifests and the Compose file in the folder deploy.
// It is a separate module, so that Helm and the types of Kubernetes do not choose the versions of
// Cronce's other dependencies.
package deploy
