//go:build tools

// Pins the program that tests/cluster/controllers.py builds.
package tools

import _ "github.com/kubeflow/trainer/v2/cmd/trainer-controller-manager"
