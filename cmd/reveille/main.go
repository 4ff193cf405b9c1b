// Command reveille watches the streams of a Durable Streams server and wakes workers by signed webhooks.
package main

import (
	"context"
	"io"
	stdlog "log"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"syscall"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

func main() {
	os.Exit(run(os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}

func run(args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	// A second signal ends the program at once.
	context.AfterFunc(ctx, stop)
	defer stop()
	if len(args) > 0 {
		stdlog.SetOutput(io.Discard) // what libraries log about the requests does not help an operator
		c := &cli{in: stdin, out: stdout, now: time.Now}
		return c.exit(c.run(ctx, args), stderr)
	}
	level := zap.NewAtomicLevel()
	log := newLogger(stderr, level)
	defer func() { _ = log.Sync() }()
	newRemarks(log.Named("libraries")).takeOver()
	if err := start(ctx, log, level); err != nil {
		log.Error("the program cannot start, or go on", zap.Error(err))
		return exitFailed
	}
	return exitOK
}

func start(ctx context.Context, log *zap.Logger, level zap.AtomicLevel) error {
	s, warnings, err := load()
	if err != nil {
		return err
	}
	level.SetLevel(s.LogLevel)
	collectLessOften()
	return serve(ctx, s, warnings, log, level)
}

// heapRoom is how many bytes the program may allocate from one garbage collection to the next, at least. Under load, a
// small heap is otherwise collected several times a second, which takes an eighth of the processor time.
const heapRoom = 32 << 20

// collectLessOften makes the heap grow by heapRoom, or by what the collector has to look at if that is more, until the
// next collection. So the memory that this costs is bounded by heapRoom. GOMEMLIMIT applies all the same, and GOGC
// stands.
func collectLessOften() {
	if !collectorIsSet() {
		afterCollection(100)
	}
}

// afterCollection adapts the percentage of the heap's growth after each collection.
func afterCollection(percent int) {
	scanned := []metrics.Sample{
		{Name: "/gc/heap/live:bytes"}, {Name: "/gc/scan/stack:bytes"}, {Name: "/gc/scan/globals:bytes"},
	}
	metrics.Read(scanned)
	base := uint64(0)
	for _, s := range scanned {
		base += s.Value.Uint64()
	}
	if p := growth(base); p != percent {
		percent = p
		debug.SetGCPercent(percent)
	}
	runtime.AddCleanup(new([64]byte), afterCollection, percent)
}

// growth returns by how many percent of base the heap may grow: of its live part, the stacks and the globals. It is a
// multiple of 25, because each change stops the program for a moment.
func growth(base uint64) int {
	const least = 4 << 20 // as the runtime has it
	return max(100, int(heapRoom*100/max(base, least))/25*25)
}

// newLogger returns the only logger of the program. It also gets what libraries log.
func newLogger(to io.Writer, level zap.AtomicLevel) *zap.Logger {
	c := zap.NewProductionEncoderConfig()
	c.EncodeTime, c.TimeKey = zapcore.RFC3339NanoTimeEncoder, "time"
	core := zapcore.NewCore(zapcore.NewJSONEncoder(c), zapcore.Lock(zapcore.AddSync(to)), level)
	return zap.New(core, zap.AddCaller())
}
