// Command reveille watches the streams of a Durable Streams server and wakes workers by signed webhooks.
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"
)

// version is set by the linker for releases.
var version = ""

func main() {
	os.Exit(run(os.Args[1:], os.Stdout, os.Stderr))
}

func run(args []string, stdout, stderr io.Writer) int {
	if len(args) > 0 {
		switch args[0] {
		case "-h", "--help", "help":
			if err := usage(stdout); err != nil {
				return 1
			}
			return 0
		case "--version", "version":
			_, _ = fmt.Fprintln(stdout, "reveille", programVersion())
			return 0
		}
		_, _ = fmt.Fprintf(stderr, "reveille: unknown argument %q; it is set up by environment variables, see reveille --help\n", args[0])
		return 2
	}
	s, warnings, err := load()
	if err != nil {
		_, _ = fmt.Fprintln(stderr, "reveille:", err)
		return 1
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	// A second signal ends the program at once.
	context.AfterFunc(ctx, stop)
	defer stop()
	if err := serve(ctx, s, warnings); err != nil {
		_, _ = fmt.Fprintln(stderr, "reveille:", err)
		return 1
	}
	return 0
}

// programVersion is the release, or else the revision that the program was built from.
func programVersion() string {
	if version != "" {
		return version
	}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			if s.Key == "vcs.revision" && len(s.Value) >= 12 {
				return "dev-" + s.Value[:12]
			}
		}
	}
	return "dev"
}
