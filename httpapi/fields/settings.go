package fields

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"reveille/fsm"
	"reveille/httpapi/refusal"
	"reveille/httpapi/web"
)

// The bounds of a push subscription's timeout.
const (
	minTimeout = 5 * time.Second
	maxTimeout = 60 * time.Second
)

// setting applies one field of a PUT or PATCH to a subscription, or refuses it. It may be called more than once, and
// leaves the subscription's maps and lists as they are.
type setting func(*fsm.Subscription) error

// settings are the fields of a subscription beside its webhook, description and start, in the order in which they are
// set. The mode comes first, because others depend on it. A null field stands for the default.
var settings = []struct {
	name string
	read func(web.Object) (setting, error)
}{
	{"mode", readMode},
	{"signature", readSignature},
	{"format", readFormat},
	{"batch", readBatch},
	{"events", readEvents},
	{"type_path", readTypePath},
	{"filter", readFilter},
	{"ordering", readOrdering},
	{"timeout", readTimeout},
	{"retry", readRetry},
	{"headers", readHeaders},
	{"authorization", readAuthorization},
	{"metadata", readMetadata},
}

func settingNames() (names []string) {
	for _, s := range settings {
		names = append(names, s.name)
	}
	return names
}

// readSettings reads the settings that a body has.
func readSettings(o web.Object) (asked []setting, err error) {
	for _, s := range settings {
		if _, said := o[s.name]; !said {
			continue
		}
		set, err := s.read(o)
		if err != nil {
			return nil, err
		}
		asked = append(asked, set)
	}
	return asked, nil
}

// Settings shows the settings. The webhook spec knows none of them, so a subscription of ModeWake shows only values
// that are not the default.
type Settings struct {
	Signature fsm.Signature `json:"signature,omitempty"`
	// Start is left out if streams begin at their end.
	Start  string     `json:"start,omitempty"`
	Mode   fsm.Mode   `json:"mode,omitempty"`
	Format fsm.Format `json:"format,omitempty"`
	Batch  int        `json:"batch,omitempty"`
	Filter
	Ordering fsm.Ordering `json:"ordering,omitempty"`
	Timeout  string       `json:"timeout,omitempty"`
	Retry    *retryBody   `json:"retry,omitempty"`
	// Headers has only the names: the values may be secrets.
	Headers       []string           `json:"headers,omitempty"`
	Authorization *authorizationBody `json:"authorization,omitempty"`
	Metadata      map[string]string  `json:"metadata,omitempty"`
}

type retryBody struct {
	Schedule []string `json:"schedule"`
}

// Backfill shows how many streams a backfill has dealt with.
type Backfill struct {
	Done  int `json:"done"`
	Total int `json:"total"`
}

// SettingsOf shows the settings of a subscription.
func SettingsOf(sub fsm.Subscription) Settings {
	b := Settings{Batch: sub.Batch, Headers: slices.Sorted(maps.Keys(sub.Headers)), Metadata: sub.Metadata}
	b.Filter = FilterOf(sub)
	b.Start, b.Ordering, b.Authorization = sub.Start.Value(), sub.Ordering, authorizationOf(sub)
	if sub.Mode != fsm.ModeWake || sub.Signature != fsm.SignatureHMAC {
		b.Signature = sub.Signature
	}
	if sub.Mode != fsm.ModeWake {
		b.Mode = sub.Mode
	}
	if sub.Format != fsm.FormatWake {
		b.Format = sub.Format
	}
	if sub.Timeout != 0 {
		b.Timeout = durationText(sub.Timeout)
	}
	if len(sub.Retry) > 0 {
		b.Retry = &retryBody{}
		for _, d := range sub.Retry {
			b.Retry.Schedule = append(b.Retry.Schedule, durationText(d))
		}
	}
	return b
}

// oneOf reads a field that is one of several words; the first is the default.
func oneOf[T ~string](o web.Object, name string, known []T) (T, error) {
	want := quotedList(known)
	word, ok, err := web.Optional[T](o, name, want)
	switch {
	case err != nil:
		return "", err
	case !ok:
		return known[0], nil
	case !slices.Contains(known, word):
		return "", refusal.New(fsm.CodeInvalidRequest, "%s must be %s", name, want)
	}
	return word, nil
}

func quotedList[T ~string](words []T) string {
	quoted := make([]string, len(words))
	for i, word := range words {
		quoted[i] = strconv.Quote(string(word))
	}
	return strings.Join(quoted, " or ")
}

// readMode reads the mode. A subscription gets its mode when it is created, and keeps it. Its consumers may be in the
// middle of deliveries that the other mode does not have.
func readMode(o web.Object) (setting, error) {
	mode, err := oneOf(o, "mode", fsm.Modes)
	return func(sub *fsm.Subscription) error {
		if sub.Mode != "" && sub.Mode != mode {
			return refusal.New(fsm.CodeInvalidRequest,
				"mode cannot be changed from %q: delete the subscription and create it anew",
				refusal.Clipped(string(sub.Mode)))
		}
		sub.Mode = mode
		return nil
	}, err
}

// readSignature reads the signature scheme, whose default depends on the mode.
func readSignature(o web.Object) (setting, error) {
	signature, err := oneOf(o, "signature", fsm.Signatures)
	if web.IsNull(o["signature"]) {
		signature = ""
	}
	return func(sub *fsm.Subscription) error {
		sub.Signature = signature
		return nil
	}, err
}

func readFormat(o web.Object) (setting, error) {
	format, named, err := web.Optional[fsm.Format](o, "format", "a string")
	return func(sub *fsm.Subscription) error {
		mode := cmp.Or(sub.Mode, fsm.ModeWake)
		if known := fsm.Formats[mode]; named && !slices.Contains(known, format) {
			return refusal.New(fsm.CodeInvalidRequest, `format must be %s for "mode":%q`, quotedList(known), mode)
		}
		sub.Format = format
		return nil
	}, err
}

func readBatch(o web.Object) (setting, error) {
	want := fmt.Sprintf("an integer from 1 to %d", fsm.MaxBatch)
	batch, named, err := web.Optional[int](o, "batch", want)
	if named && (batch < 1 || batch > fsm.MaxBatch) {
		err = refusal.New(fsm.CodeInvalidRequest, "batch must be %s", want)
	}
	return forPush("batch", named, func(sub *fsm.Subscription) { sub.Batch = batch }), err
}

// checkBatch refuses batches in a format that carries one event. Either field can be the changed one.
func checkBatch(sub fsm.Subscription) error {
	if sub.Format.Single() && sub.Batch > 1 {
		return refusal.New(fsm.CodeInvalidRequest,
			`batch must be 1 for "format":%q, which has one event in a request, and is %d`, sub.Format, sub.Batch)
	}
	return nil
}

func readOrdering(o web.Object) (setting, error) {
	ordering, err := oneOf(o, "ordering", fsm.Orderings)
	return forPush("ordering", !web.IsNull(o["ordering"]), func(sub *fsm.Subscription) { sub.Ordering = ordering }), err
}

func readTimeout(o web.Object) (setting, error) {
	timeout, named, err := readDuration(o, "timeout", minTimeout, maxTimeout)
	return forPush("timeout", named, func(sub *fsm.Subscription) { sub.Timeout = timeout }), err
}

// forPush is a setting that only push subscriptions have. Other subscriptions accept only its default, which is none.
func forPush(name string, named bool, set func(*fsm.Subscription)) setting {
	return func(sub *fsm.Subscription) error {
		switch {
		case sub.Mode == fsm.ModePush:
			set(sub)
		case named:
			return refusal.New(fsm.CodeInvalidRequest, `%s is only for "mode":"push"`, name)
		}
		return nil
	}
}

// readDuration reads a field that may be absent or null: named is then false.
func readDuration(o web.Object, name string, least, most time.Duration) (d time.Duration, named bool, err error) {
	raw, found := o[name]
	if !found || web.IsNull(raw) {
		return 0, false, nil
	}
	d, err = duration(raw, name, least, most)
	return d, err == nil, err
}

// duration decodes a text such as "30s". It cuts off what is finer than a millisecond.
func duration(raw json.RawMessage, name string, least, most time.Duration) (time.Duration, error) {
	want := fmt.Sprintf(`a duration from %q to %q, as a text such as "30s"`, durationText(least), durationText(most))
	text, err := web.Value[string](raw, name, want)
	if err != nil {
		return 0, err
	}
	d, err := time.ParseDuration(text)
	if err != nil || d < least || d > most {
		return 0, refusal.New(fsm.CodeInvalidRequest, "%s must be %s", name, want)
	}
	return d.Truncate(time.Millisecond), nil
}

// durationText writes a duration as a client would: "2m", not "2m0s".
func durationText(d time.Duration) string {
	text := d.String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}
