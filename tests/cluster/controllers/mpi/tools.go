//go:build tools

// Pins the program that tests/cluster/controllers.py builds.
package tools

import _ "github.com/kubeflow/mpi-operator/cmd/mpi-operator"
