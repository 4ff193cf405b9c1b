package bench

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"reveille/test/harness"
)

// tick is the unit of the times in /proc/PID/stat, on every Linux that Go runs on.
const tick = 10 * time.Millisecond

// role is a process, or several, of a world.
type role string

const (
	waker   role = "Reveille" // or the floor
	store   role = "Redis"
	streams role = "stream server"
)

var roles = []role{waker, store, streams}

func (w *world) processes(r role) (list []*harness.Process) {
	switch {
	case r == streams:
		list = append(list, w.ref.Process)
	case w.floor != nil && r == waker:
		list = append(list, w.floor)
	case r == waker:
		for _, rev := range w.revs {
			list = append(list, rev.Process)
		}
	case w.redis != nil:
		list = append(list, w.redis.Process)
	}
	return list
}

// cpu is the processor time that each role has taken since it began.
func (w *world) cpu() map[role]time.Duration {
	w.t.Helper()
	used := map[role]time.Duration{}
	for _, r := range roles {
		for _, p := range w.processes(r) {
			used[r] += cpuOf(w.t, p.Pid())
		}
	}
	return used
}

type fataler interface {
	Helper()
	Fatal(args ...any)
}

func cpuOf(t fataler, pid int) time.Duration {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		t.Fatal(err)
	}
	// The second field is a name in parentheses, which may hold anything; 14 and 15 are the times in user and in kernel
	// mode.
	fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
	var ticks int64
	for _, f := range fields[11:13] {
		n, err := strconv.ParseInt(f, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		ticks += n
	}
	return time.Duration(ticks) * tick
}

func since(before, after map[role]time.Duration) map[role]time.Duration {
	used := map[role]time.Duration{}
	for r, d := range after {
		used[r] = d - before[r]
	}
	return used
}

// rss is the resident memory of a role in bytes, files how many it has open.
func (w *world) rss(r role) (bytes int) {
	w.t.Helper()
	for _, p := range w.processes(r) {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", p.Pid()))
		if err != nil {
			w.t.Fatal(err)
		}
		pages, err := strconv.Atoi(strings.Fields(string(text))[1])
		if err != nil {
			w.t.Fatal(err)
		}
		bytes += pages * os.Getpagesize()
	}
	return bytes
}

func (w *world) files(r role) (n int) {
	w.t.Helper()
	for _, p := range w.processes(r) {
		entries, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", p.Pid()))
		if err != nil {
			w.t.Fatal(err)
		}
		n += len(entries)
	}
	return n
}

// maxLive is the default of REVEILLE_TAIL_MAX_LIVE, spareFiles what a process needs beside its live requests.
const (
	maxLive    = 10_000
	spareFiles = 500
)

// filesFor says whether each process may open as many files as a number of watched streams takes, and what is to be
// said of it.
func filesFor(watched int) (enough bool, say string) {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return false, "the limit of open files is not known: " + err.Error()
	}
	// Go and Node programs raise their own limit as far as they may.
	needed := uint64(min(watched, maxLive) + spareFiles)
	say = fmt.Sprintf("%d open files are allowed to a process, %d streams need %d", limit.Max, watched, needed)
	return limit.Max >= needed, say
}
