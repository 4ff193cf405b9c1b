package fields

import (
	"cmp"
	"encoding/json"
	"fmt"
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

// The bounds of a subscription's disable_after.
const (
	minDisableAfter = time.Minute
	maxDisableAfter = 90 * 24 * time.Hour
)

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
func (Reader) readMode(o web.Object) (setting, error) {
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
func (Reader) readSignature(o web.Object) (setting, error) {
	signature, err := oneOf(o, "signature", fsm.Signatures)
	if web.IsNull(o["signature"]) {
		signature = ""
	}
	return always(func(sub *fsm.Subscription) { sub.Signature = signature }), err
}

func (Reader) readFormat(o web.Object) (setting, error) {
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

func (Reader) readBatch(o web.Object) (setting, error) {
	batch, err := readCount(o, "batch", fsm.MaxBatch, "an integer")
	return always(func(sub *fsm.Subscription) { sub.Batch = batch }), err
}

func (Reader) readRate(o web.Object) (setting, error) {
	rate, err := readCount(o, "rate", fsm.MaxRate, "a whole number of requests a minute")
	return always(func(sub *fsm.Subscription) { sub.Rate = rate }), err
}

// readCount reads a number from 1 on, 0 if there is none.
func readCount(o web.Object, name string, most int, what string) (int, error) {
	want := fmt.Sprintf("%s from 1 to %d", what, most)
	n, named, err := web.Optional[int](o, name, want)
	if named && (n < 1 || n > most) {
		err = refusal.New(fsm.CodeInvalidRequest, "%s must be %s", name, want)
	}
	return n, err
}

// checkBatch refuses batches in a format that carries one event. Either field can be the changed one.
func checkBatch(sub fsm.Subscription) error {
	if sub.Format.Single() && sub.Batch > 1 {
		return refusal.New(fsm.CodeInvalidRequest,
			`batch must be 1 for "format":%q, which has one event in a request, and is %d`, sub.Format, sub.Batch)
	}
	return nil
}

func (Reader) readOrdering(o web.Object) (setting, error) {
	ordering, err := oneOf(o, "ordering", fsm.Orderings)
	return always(func(sub *fsm.Subscription) { sub.Ordering = ordering }), err
}

func (Reader) readTimeout(o web.Object) (setting, error) {
	timeout, _, err := readDuration(o, "timeout", minTimeout, maxTimeout)
	return always(func(sub *fsm.Subscription) { sub.Timeout = timeout }), err
}

func (Reader) readDisableAfter(o web.Object) (setting, error) {
	after, _, err := readDuration(o, "disable_after", minDisableAfter, maxDisableAfter)
	return always(func(sub *fsm.Subscription) { sub.DisableAfter = after }), err
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
