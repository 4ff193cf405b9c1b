package main

import (
	"bytes"
	"io"
	"log"
	"regexp"
	"slices"
	"strings"
	"time"

	"go.uber.org/zap"
	"google.golang.org/grpc/grpclog"

	"reveille/fsm/throttle"
)

// remarkKinds are the known log lines of libraries, by how they begin, with what Reveille logs instead. The rest of a
// line may come from outside, for example an answer that repeats a request with its secrets. Reveille logs it only if
// own says that it comes from this program or its machine. The last kind is every other line.
var remarkKinds = [...]remarkKind{
	{begins: "Unsolicited response received", remark: "a server sent bytes that answer no request"},
	{begins: "http: TLS handshake error", remark: "a client failed to complete a TLS handshake"},
	{begins: "http: Accept error", remark: "a connection could not be accepted", own: true},
	{begins: panicBegins, remark: "a request was ended by a panic: a bug in Reveille"},
	{begins: "http: superfluous response.WriteHeader", remark: "an answer has two statuses: a bug in Reveille"},
	{begins: "http: invalid Content-Length", remark: "an answer has an invalid length"},
	{begins: "http: response.Write", remark: "an answer was written to a connection that was taken over"},
	{begins: "httputil: ReverseProxy read error", remark: "an answer that passes through the gateway broke off"},
	{begins: "http2: header list too large", remark: "an HTTP/2 peer sent too many headers"},
	{begins: "http2: invalid", remark: "an HTTP/2 peer sent an invalid header"},
	{begins: "http2: 1xx informational", remark: "an HTTP/2 server sent too many interim answers"},
	{begins: "http2: ", remark: "an HTTP/2 connection had a problem"},
	{begins: "error gathering metrics", remark: "not all metrics could be collected", own: true},
	{begins: "error encoding and sending metric", remark: "a scrape of the metrics broke off"},
	{remark: "not shown, because it is of an unknown kind"},
}

type remarkKind struct {
	begins, remark string
	own            bool
}

const (
	panicBegins = "http: panic serving"
	// maxRemark bounds what is logged of a line of this program, maxStack the stack of a panic.
	maxRemark, maxStack = 300, 4 << 10
)

// remarks logs what libraries can only write to a logger of their own. It does not log each kind too often.
type remarks struct {
	log *zap.Logger
	now func() time.Time
	// troubles limits the log lines of each kind.
	troubles [len(remarkKinds)]throttle.Trouble
}

func newRemarks(l *zap.Logger) *remarks { return &remarks{log: l, now: time.Now} }

// logger returns a logger that says where in its source a library has logged.
func (r *remarks) logger() *log.Logger { return log.New(r, "", log.Lshortfile) }

// takeOver makes remarks the logger of all libraries that have none of their own.
func (r *remarks) takeOver() {
	log.SetFlags(log.Lshortfile)
	log.SetPrefix("")
	log.SetOutput(r)
	grpclog.SetLoggerV2(grpclog.NewLoggerV2(io.Discard, io.Discard, r))
}

// source matches what a logger puts before a line. The name is of Go code in this program.
var source = regexp.MustCompile(`^[\w.-]{1,64}\.go:[0-9]{1,9}: `)

// stack matches the beginning of a panic's stack: functions, files and addresses of this program.
var stack = regexp.MustCompile(`(?m)^goroutine [0-9]+ \[running\]:$`)

// Write implements io.Writer. Each call is one line of a log, which may be a long text.
func (r *remarks) Write(text []byte) (int, error) {
	from := source.Find(text)
	line := text[len(from):]
	i := slices.IndexFunc(remarkKinds[:], func(k remarkKind) bool { return bytes.HasPrefix(line, []byte(k.begins)) })
	times, log := r.troubles[i].Happened(r.now())
	if !log {
		return len(text), nil
	}
	k := remarkKinds[i]
	fields := []zap.Field{
		zap.String("remark", k.remark), zap.String("source", strings.TrimSuffix(string(from), ": ")),
		zap.Int("times", times),
	}
	if k.own {
		fields = append(fields, zap.String("error", string(bytes.TrimSpace(line[:min(len(line), maxRemark)]))))
	}
	// The panic's own text comes first. It may come from outside.
	if at := stack.FindAllIndex(line, -1); k.begins == panicBegins && at != nil {
		frames := line[at[len(at)-1][0]:]
		fields = append(fields, zap.String("stack", string(frames[:min(len(frames), maxStack)])))
	}
	r.log.Warn("connection problem", fields...)
	return len(text), nil
}
