package console

// meaning says what a class of failures is, and what to do about it.
type meaning struct{ Is, Do string }

// means returns the meaning of a class; nil for an unknown one.
func means(class string) *meaning {
	if m, ok := meanings[class]; ok {
		return &m
	}
	return nil
}

// Explains says whether the pages say what a class of failures, or a cause of dead letters, means.
func Explains(class string) bool { return means(class) != nil }

// meanings has every class of a failure, and every cause for which consumers leave dead letters.
var meanings = map[string]meaning{
	"given_up": {
		"Deliveries failed for too long, and the consumer was given up.",
		"Mend the endpoint. Then replay the dead letter, or resume the subscription.",
	},
	"stream_deleted": {
		"The stream was deleted before all of it was delivered.", "Nothing can be delivered: discard the dead letter.",
	},
	"stream_gone": {
		"The stream was missing for too long.", "Find out who removed it. Then discard the dead letter.",
	},
	"stream_recreated": {
		"The stream was made anew under its name. What the old one had is gone.", "Discard the dead letter.",
	},
	"redirect": {
		"The endpoint answered with a redirect. Reveille follows none, and does not try the events again.",
		"Set the webhook to the address that the endpoint redirects to. Then replay the dead letters.",
	},
	"client_error": {
		"The endpoint refused the request (4xx). Events of a push are not tried again.",
		"Look at the status and the answer. With 401 or 403, check the authorization and the " +
			"secret. With 404, check the address. Then replay the dead letters.",
	},
	"gone": {
		"The endpoint answered 410: it wants no more deliveries.",
		"If that was a mistake, mend the endpoint and resume the subscription.",
	},
	"rate_limited": {
		"The endpoint answered 429: it gets too much.",
		"Reveille waits as long as the endpoint asks. A lower rate for the subscription prevents it.",
	},
	"server_error": {
		"The endpoint, or a proxy before it, failed by itself (5xx).",
		"Look at the answer, and at the log of the endpoint at that time.",
	},
	"unavailable": {
		"The endpoint answered 503: it is not ready.",
		"Reveille tries again. If it lasts, look at the endpoint's load and at its deployment.",
	},
	"invalid_status": {
		"The endpoint answered with a status that means nothing here.",
		"Let it answer 200, 202 or 204.",
	},
	"timeout": {
		"The endpoint did not answer in time.",
		"Make the endpoint answer first and work later, or set a longer timeout.",
	},
	"dns": {"The host name of the webhook does not resolve.", "Check the name, and the DNS of the replicas."},
	"tls": {
		"The TLS handshake failed, or the certificate is not valid.",
		"Look at the reason: the certificate has expired, is for another name, or is signed by an unknown authority.",
	},
	"connection": {
		"The connection was refused, reset or closed.",
		"Check that the endpoint runs, and that no firewall is in between.",
	},
	"proxy": {
		"The proxy for webhooks cannot be reached, or has answered itself.",
		"Check the proxy; the endpoint is not to blame.",
	},
	"prohibited": {
		"The settings do not allow this target.",
		"Set another webhook, or allow its network (REVEILLE_WEBHOOK_ALLOW_CIDRS).",
	},
	"too_many_open_files": {"This machine has no more open files for Reveille.", "Raise the limit of open files."},
	"other":               {"The request failed for another reason.", "Look at the reason."},
	"upstream":            {"The events could not be read from the stream server.", "Check the stream server."},
	"too_large": {
		"The event is too large for a delivery.",
		"Append smaller events, or wake a worker instead.",
	},
	"too_deep": {"The event is nested too deeply.", "Append flatter events."},
	"not_kept": {
		"The stream server dropped the events before they were delivered.",
		"Keep events on the stream server for longer than endpoints may fail.",
	},
	"not_built": {
		"No request can be made of the events.",
		"Look at the reason: the format does not suit the events.",
	},
	"not_json": {
		"The subscription has a filter, and the stream is not JSON.",
		"Remove the filter, or append JSON.",
	},
	"unknown_format": {"This version does not know the format.", "Upgrade all replicas to the same version."},
}
