package main

import (
	"cmp"
	"fmt"
	"io"
	"text/tabwriter"
)

// meanings is what --help and SETTINGS.md say about each setting.
var meanings = map[string]string{
	"UPSTREAM_URL": "required; root URL of the stream server: stream /a is at {root}/a",
	"UPSTREAM_H2C": "use HTTP/2 over plain HTTP; HTTPS negotiates HTTP/2",
	"UPSTREAM_HEADERS": "headers of Reveille's own requests to the stream server; a Host is also sent with " +
		"requests through the gateway",
	"UPSTREAM_DIALECT": "protocol of the stream server: standard, anycable, or auto (recognized by its answers)",
	"UPSTREAM_SIGNING_KEY": "AnyCable's secret for signed streams: Reveille's own requests carry signed stream " +
		"names",
	"UPSTREAM_NAME": "name of the stream server in the database, for replicas that reach it by different URLs, or " +
		"when its URL has changed; its URL by default",
	"REDIS_URL": "required; redis://…, redis+cluster://h1,h2, redis+sentinel://h1,h2/name (rediss for TLS), or " +
		"embedded: runs in this process, for trying out; its data is gone when the process ends",
	"REDIS_PASSWORD": "password of Redis, instead of one in REVEILLE_REDIS_URL, for the user that the URL names",
	"REDIS_CA_FILE": "PEM file of the authorities that are trusted to sign the certificates of a rediss server; " +
		"the system's by default",
	"PARTITIONS": "number of partitions of the data, 1 to 4096; cannot change once the database is in use",
	"PUBLIC_URL": "where workers reach the API port: callback URLs and the source of CloudEvents and OJS events " +
		"begin with it; if set, the gateway also uses it in a Location of the stream server",
	"TOKEN_KEY": "required unless Redis is embedded; the key that signs callback tokens, at least 32 bytes; after " +
		"a comma, an older key that is still accepted",
	"LISTEN_ADDR":   "address of the API port: subscriptions, callbacks, gateway",
	"OPERATOR_ADDR": "address of the operator port: health, readiness, /api/v1",
	"ADMIN_TOKEN": "what the operator port asks for, at least 20 random characters; the commands send it; empty: the " +
		"port asks for nothing",
	"READ_TOKEN": "another token of the operator port, for those who may only look",
	"GATEWAY":    "forward all other requests on the API port to the stream server",
	"CORS_ORIGINS": "origins of web pages that may use Reveille's own resources from a browser; * allows all " +
		"pages to use those of the API port; the operator port also answers at the hosts of the listed origins",
	"OJS": "serve the webhooks of Open Job Spec on the API port, at /ojs/v1/webhooks/subscriptions and " +
		"/ojs/v1/webhooks/deliveries; nothing at /ojs/v1/webhooks/ is then a stream",
	"OJS_STREAMS": "pattern of the streams that these subscriptions are for",
	"OUTBOX": "take events for direct delivery on the API port, at /webhooks/; they lie in streams below this path, " +
		"e.g. /outbox; nothing at /webhooks/ or below the path is then a stream for clients",
	"OUTBOX_ROLL": "how long new events of a target go to the same streams; then others begin, and the old ones are " +
		"removed once none of their events is kept",
	"EVENTS_STREAM": "path of a JSON stream that notices for operators (reveille.endpoint.failing and so on) and the " +
		"events of the webhooks of Open Job Spec (webhook.delivered and so on) are appended to, e.g. " +
		"/reveille/events; it is made if it is not there",
	"NOTICE_WEBHOOK":  "webhook of your own that gets the notices; it needs REVEILLE_EVENTS_STREAM",
	"NOTICE_AFTER":    "how long an endpoint fails before there is a notice",
	"NOTICE_LETTERS":  "number of dead letters, of all subscriptions, above which there is a notice; 0 for never",
	"STREAMS":         "paths of streams that exist or will exist",
	"REGISTRY_STREAM": "path of the stream server's registry stream, e.g. /__registry__",
	"TAIL_MODE":       "how streams are watched: sse, long-poll, or auto for SSE where the server does that well",
	"TAIL_CHECK": "how long a stream may be silent before it is checked with HEAD; a stream that stays silent is " +
		"checked less often, but at least every six times that",
	"CLOSED_CHECK": "how often a closed stream is checked with HEAD, in case there is another one of its name; those " +
		"that a setting or a pattern without a wildcard names are checked every six times REVEILLE_TAIL_CHECK",
	"TAIL_MAX_LIVE": "maximum number of streams with an open request; beyond it, those that have been silent " +
		"longest are checked with HEAD",
	"TAIL_SWEEP_RATE": "maximum number of HEAD requests per second for the streams beyond " +
		"REVEILLE_TAIL_MAX_LIVE",
	"STREAM_GONE_GRACE":       "how long a stream must answer 404 before its consumers are removed",
	"ALLOW_INSECURE_WEBHOOKS": "allow webhooks over http, on this machine and in private networks",
	"WEBHOOK_ALLOW_CIDRS":     "private address ranges that webhooks may use, e.g. 10.1.0.0/16,fd00:1::/64",
	"WEBHOOK_PROXY_FROM_ENV":  "send webhooks through HTTP_PROXY / HTTPS_PROXY",
	"WEBHOOK_CONNECTION_AGE": "how long a connection to a webhook is used; then its host's name is resolved again " +
		"for a new one",
	"WEBHOOK_TIMEOUT":  "how long a webhook request may stay open",
	"WAKING_TIMEOUT":   "how long a wake may go without a 2xx or a claim before it is sent again",
	"LIVENESS_TIMEOUT": "how long a live consumer may go without a callback before it is woken again",
	"GC_AFTER": "how long deliveries may fail without a break before the consumer is given up; it keeps its " +
		"offsets, and the next event wakes it again",
	"DELIVERY_LOG": "which delivery attempts are kept for reveille deliveries, for a week and about the latest " +
		"thousand of each subscription: all, failures or off",
	"DELIVERY_LOG_BODIES": "of which of these attempts the first KiB of the answer is kept: all, failures " +
		"or off",
	"MAX_IN_FLIGHT":                  "maximum number of open webhook requests",
	"MAX_IN_FLIGHT_PER_SUBSCRIPTION": "maximum number of open webhook requests of one subscription",
	"MAX_QUEUED_WAKES": "maximum number of wakes that wait in memory for a free webhook request; others wait in " +
		"Redis",
	"MAX_RATE": "maximum number of requests a minute to an endpoint, from all replicas; 0 for no limit",
	"CONSENT": "what an endpoint gets that has not agreed to deliveries: everything, without being asked (off), " +
		"REVEILLE_UNCONSENTED_RATE (ask), or nothing (require)",
	"ORIGIN": "DNS name by which endpoints are asked for their consent, and which deliveries then have in the header " +
		"Origin; the host of REVEILLE_PUBLIC_URL by default",
	"UNCONSENTED_RATE": "maximum number of requests a minute to an endpoint that has not agreed to deliveries, and " +
		"of requests for its consent",
	"DEAD_LETTER_RETENTION":    "how long dead letters are kept: what is not delivered and not tried again",
	"MAX_DEAD_LETTERS":         "maximum number of dead letters of one subscription; the oldest are dropped",
	"MAX_STREAMS_PER_CONSUMER": "maximum number of streams of one consumer",
	"MAX_CONNECTIONS": "maximum number of connections to the API port; a new one beyond it closes the one that " +
		"has waited longest for a request",
	"LOG_LEVEL":   "debug, info, warn or error",
	"LOG_SUMMARY": "how often the log says how many deliveries were taken, if any were; 0s for never",
	"PPROF":       "serve profiles of the program at /debug/pprof/ on the operator port",
}

const about = "Reveille wakes workers: it watches the streams of a Durable Streams server and POSTs a signed webhook " +
	"when one of them\n" + `gets an event.

Usage: reveille            run, set up by the environment
       reveille COMMAND    subscribe, try it out, ask one that runs
       reveille --help     print this
       reveille --version  print the version

Traces are exported if the standard OTEL_EXPORTER_OTLP_ENDPOINT is set, as the other OTEL_* variables say.
`

// usage prints the settings from the fields of the struct, so that none is missing.
func usage(w io.Writer) error {
	if _, err := io.WriteString(w, about); err != nil {
		return err
	}
	_, _ = io.WriteString(w, "\nCommands (reveille COMMAND --help says more; "+
		"--output json prints the answer as it is):\n")
	if err := commandList(w); err != nil {
		return err
	}
	_, _ = io.WriteString(w, "\nExit status of a command: "+exitStatuses+"\n\nSettings:\n")
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, f := range fields() {
		def := cmp.Or(f.Tag.Get("default"), "-")
		if _, err := fmt.Fprintf(t, "  %s\t%s\t%s\n", fullName(f), def, meanings[shortName(f)]); err != nil {
			return err
		}
	}
	return t.Flush()
}
