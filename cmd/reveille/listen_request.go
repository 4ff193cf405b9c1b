package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"mime"
	"net/http"
	"strings"
	"time"

	"reveille/dispatcher/format"
	"reveille/fsm"
)

// The kinds of requests that a listener receives.
const (
	kindWake  = "wake"
	kindPush  = "push"
	kindTest  = "test"
	kindOther = "other"
)

const (
	// maxShown is how many events of one stream are shown, maxText how much of each, in bytes.
	maxShown, maxText = 10, 1000
)

// received is a request as it is shown. Its JSON is one line of --output json.
type received struct {
	At   time.Time `json:"at"`
	Kind string    `json:"kind"`
	// Verified is nil without a secret. If it is false, NotVerified says why.
	Verified    *bool    `json:"verified"`
	Signatures  []string `json:"signatures,omitempty"` // the schemes that it is signed by
	NotVerified string   `json:"not_verified,omitempty"`

	Subscription string `json:"subscription_id,omitempty"`
	// ID is the wake_id of a wake, and Webhook-Id of a push.
	ID      string         `json:"id,omitempty"`
	Epoch   int64          `json:"epoch,omitempty"`
	Format  string         `json:"format,omitempty"`
	Replay  bool           `json:"replay,omitempty"`
	Streams []*shownEvents `json:"streams,omitempty"`

	// Done is true of a wake that was claimed, read and acked.
	Done   bool   `json:"done,omitempty"`
	Failed string `json:"failed,omitempty"`
	Status int    `json:"status"`
	By     string `json:"answered_by,omitempty"` // where it was passed on to

	wake wakeBody
}

// shownEvents are those of one stream.
type shownEvents struct {
	Path   string      `json:"path,omitempty"`
	From   string      `json:"from,omitempty"`
	To     string      `json:"to,omitempty"`
	Count  int         `json:"count"`
	Events []eventText `json:"events"`
	// More is true if there is more to read than was read.
	More bool `json:"more,omitempty"`
}

// add counts an event, and keeps it if it is one of the first.
func (s *shownEvents) add(text []byte) {
	if s.Count++; len(s.Events) < maxShown {
		s.Events = append(s.Events, newEventText(text))
	}
}

// eventText is an event as it is shown: JSON as it is, and any other text as a string of it.
type eventText string

func newEventText(text []byte) eventText {
	if json.Valid(text) {
		var b bytes.Buffer
		if json.Compact(&b, text) == nil && b.Len() <= maxText {
			return eventText(b.String())
		}
	}
	if len(text) > maxText {
		return eventText(strings.ToValidUTF8(string(text[:maxText]), "?") + "…")
	}
	return eventText(strings.ToValidUTF8(string(text), "?"))
}

// MarshalJSON implements json.Marshaler.
func (e eventText) MarshalJSON() ([]byte, error) {
	if json.Valid([]byte(e)) {
		return []byte(e), nil
	}
	return json.Marshal(string(e))
}

// wakeBody is the body of a wake (webhook spec, Payload Fields).
type wakeBody struct {
	Consumer string         `json:"consumer_id"`
	Epoch    int64          `json:"epoch"`
	WakeID   string         `json:"wake_id"`
	Streams  []streamOffset `json:"streams"`
	Callback string         `json:"callback"`
	Token    string         `json:"token"`
}

type streamOffset struct {
	Path   string `json:"path"`
	Offset string `json:"offset"`
}

// read says what a request is.
func read(h http.Header, body []byte) *received {
	got := &received{Kind: kindOther, ID: h.Get(format.IDHeader), Replay: h.Get(format.ReplayHeader) == "true"}
	path := h.Get(format.StreamHeader)
	if path == "" && json.Unmarshal(body, &got.wake) == nil && got.wake.WakeID != "" && got.wake.Callback != "" {
		got.Kind, got.ID, got.Epoch = kindWake, got.wake.WakeID, got.wake.Epoch
		got.Subscription, _, _ = strings.Cut(got.wake.Consumer, ":")
		return got
	}
	switch {
	case path != "":
		got.Kind = kindPush
	case strings.HasPrefix(got.ID, format.TestIDPrefix):
		got.Kind = kindTest
	}
	got.Subscription = h.Get("X-OJS-Subscription-ID")
	got.Format = formatOf(h)
	events := &shownEvents{Path: path}
	got.Streams = []*shownEvents{events}
	// An array is one event, unless the id is that of several, or the format has no other form.
	var list []json.RawMessage
	several := got.Format == string(fsm.FormatCloudEventsBatch) || strings.Contains(got.ID, "-")
	if several && json.Unmarshal(body, &list) == nil {
		for _, event := range list {
			events.add(event)
		}
		return got
	}
	events.add(body)
	return got
}

// formatOf returns the format of a push, as its subscription names it.
func formatOf(h http.Header) string {
	kind, _, _ := mime.ParseMediaType(h.Get("Content-Type"))
	switch {
	case h.Get(format.OJSSignatureHeader) != "":
		return string(fsm.FormatOJS)
	case kind == "application/cloudevents-batch+json":
		return string(fsm.FormatCloudEventsBatch)
	case kind == "application/cloudevents+json":
		return string(fsm.FormatCloudEvents)
	case h.Get("Ce-Specversion") != "":
		return string(fsm.FormatCloudEventsBinary)
	case kind == "application/json":
		return string(fsm.FormatJSON)
	}
	return kind
}

// verify checks each signature that a request has: all must be right.
func (l *listener) verify(got *received, h http.Header, body []byte) {
	for _, s := range signatures(h, body, l.now()) {
		got.Signatures = append(got.Signatures, s.scheme)
		if problem := l.problem(s.examine); problem != "" && got.NotVerified == "" {
			got.NotVerified = fmt.Sprintf("the %s signature is wrong: %s", s.scheme, problem)
		}
	}
	if len(l.listen.secrets) == 0 {
		got.NotVerified = ""
		return
	}
	if len(got.Signatures) == 0 {
		got.NotVerified = "there is no signature"
	}
	right := got.NotVerified == ""
	got.Verified = &right
}

// A signed is one signature of a request.
type signed struct {
	scheme  string
	examine func(secret string) format.Examination
}

// signatures returns those of a request. During a rotation, one of two by the same scheme is enough.
func signatures(h http.Header, body []byte, now time.Time) (all []signed) {
	const tolerance = format.SignatureTolerance
	header := h.Get(format.SignatureHeader)
	id, stamp := h.Get(format.IDHeader), h.Get(format.TimestampHeader)
	switch {
	case stamp != "" || strings.HasPrefix(header, format.StandardPrefix):
		all = append(all, signed{
			string(fsm.SignatureStandardWebhooks), func(secret string) format.Examination {
				return format.ExamineStandard(secret, id, stamp, header, body, now, tolerance)
			},
		})
	case header != "":
		all = append(all, signed{
			string(fsm.SignatureHMAC), func(secret string) format.Examination {
				e := format.Examine(secret, header, body, now, tolerance)
				if next := h.Get(format.NewSignatureHeader); !e.OK() && next != "" {
					e = format.Examine(secret, next, body, now, tolerance)
				}
				return e
			},
		})
	}
	if header := h.Get(format.OJSSignatureHeader); header != "" {
		all = append(all, signed{
			format.OJSSignatureHeader, func(secret string) format.Examination {
				return format.ExamineOJS(secret, h.Get(format.OJSTimestampHeader), header, body, now, tolerance)
			},
		})
	}
	return all
}

// problem says what is wrong with a signature, which must be right by one of the secrets.
func (l *listener) problem(examine func(secret string) format.Examination) (problem string) {
	for _, secret := range l.listen.secrets {
		switch e := examine(secret); {
		case e.OK():
			return ""
		case e.Form != nil:
			problem = cmp.Or(problem, e.Form.Error())
		case e.Right:
			made := relative(l.now().Add(-e.Age), l.now())
			problem = fmt.Sprintf("it was made %s, by the clock of this machine", made)
		default:
			problem = "the secret is that of another subscription, or was rotated, or the body was changed on its way"
		}
	}
	return problem
}
