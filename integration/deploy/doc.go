// Package deploy has only tests: of the Helm chart, of the plain manifests and of the Compose file
// in the folder deploy. It is a module of its own, so that Helm and the types of Kubernetes do not
// choose the versions of Cronce's other dependencies.
package deploy
