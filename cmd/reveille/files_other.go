//go:build !linux && !darwin

package main

// filesLimit is unknown on this system.
func filesLimit() (n uint64, known bool) { return 0, false }
