//go:build linux || darwin

package main

import "syscall"

// filesLimit returns how many files this process may have open.
func filesLimit() (n uint64, known bool) {
	var l syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &l); err != nil {
		return 0, false
	}
	return l.Cur, true
}
