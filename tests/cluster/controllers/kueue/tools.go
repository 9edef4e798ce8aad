//go:build tools

// Pins the program that tests/cluster/controllers.py builds.
package tools

import _ "sigs.k8s.io/kueue/cmd/kueue"
