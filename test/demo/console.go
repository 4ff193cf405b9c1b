package main

import (
	"fmt"
	"io"
	"os"
	"sync"
	"time"
)

// colours has the terminal code of the colour of each speaker.
var colours = map[string]string{
	"writer": "33", "reveille": "36", "worker": "32", "receiver": "34", "server": "35", "demo": "2",
}

// console prints one line for each step: when, who, what.
type console struct {
	mu     sync.Mutex
	out    io.Writer
	colour bool
}

// newConsole uses colour only if out is a terminal and NO_COLOR is not set.
func newConsole(out *os.File) *console {
	info, err := out.Stat()
	return &console{out: out, colour: err == nil && info.Mode()&os.ModeCharDevice != 0 && os.Getenv("NO_COLOR") == ""}
}

func (c *console) line(who, format string, args ...any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	name := fmt.Sprintf("%-8s", who)
	if c.colour {
		name = "\x1b[" + colours[who] + "m" + name + "\x1b[0m"
	}
	_, _ = fmt.Fprintf(c.out, "%s  %s  %s\n", time.Now().Format("15:04:05.000"), name, fmt.Sprintf(format, args...))
}
