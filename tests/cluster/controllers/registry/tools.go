//go:build tools

// Pins the program that tests/cluster/controllers.py builds.
package tools

import _ "github.com/distribution/distribution/v3/cmd/registry"
