// Package chart tests the Helm chart without a cluster: Helm renders it, and what comes out is held against the types
// of Kubernetes, against itself and against the program. It is a module of its own, so that the dependencies of Helm
// are not those of the program.
package chart
