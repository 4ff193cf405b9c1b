package dispatcher

import (
	"html"
	"net/url"
	"strconv"
	"strings"

	"reveille/fsm"
)

const (
	// leastSecret is the length in bytes from which on a value that a subscription sends along is masked: a shorter one
	// stands in texts by chance.
	leastSecret = 8
	masked      = "[masked]"
)

// mask takes the secrets of a subscription out of what its endpoint has answered: some endpoints repeat a request that
// they do not understand, as it came or in the way of URLs, JSON or HTML. The text may end within a secret.
func mask(sub fsm.Subscription, text string) string {
	values := []string{sub.Secret, sub.Previous.Secret, sub.Authorization.Secret}
	for _, value := range sub.Headers {
		values = append(values, value)
	}
	var secrets []string
	for _, value := range values {
		_, credentials, _ := strings.Cut(value, " ") // behind the scheme, such as Bearer
		for _, secret := range []string{value, credentials} {
			if len(secret) >= leastSecret {
				secrets = append(secrets, secret)
			}
		}
	}
	var b strings.Builder
	for i := 0; i < len(text); {
		n := 0
		for _, secret := range secrets {
			n = max(n, lengthOf(secret, text[i:]))
		}
		if n > 0 {
			b.WriteString(masked)
			i += n
		} else {
			b.WriteByte(text[i])
			i++
		}
	}
	return b.String()
}

// lengthOf returns how much of a text a secret takes at its beginning, however it is written, or 0 if it is not there.
func lengthOf(secret, text string) (longest int) {
	for _, read := range []reader{asItIs, ofURL, ofForm, ofJSON, ofHTML} {
		length, known := 0, 0
		for known < len(secret) && length < len(text) {
			plain, n := read(text[length:])
			if n == 0 { // the text ends within a character
				length = len(text)
				break
			}
			if !strings.HasPrefix(secret[known:], plain) {
				length = 0
				break
			}
			length, known = length+n, known+len(plain)
		}
		if known >= leastSecret {
			longest = max(longest, length)
		}
	}
	return longest
}

// A reader returns the first byte or character of a text, which is not empty, and how many bytes the text has for it: 0
// if it ends too early.
type reader func(text string) (plain string, n int)

func asItIs(text string) (string, int) { return text[:1], 1 }

// escapeLength is how long an escape of ofURL is, longestEntity how long one of ofHTML may be.
const escapeLength, longestEntity = len("%2B"), len("&quot;")

func ofURL(text string) (string, int) {
	if text[0] != '%' {
		return asItIs(text)
	}
	if len(text) < escapeLength {
		return "", 0
	}
	if plain, err := url.PathUnescape(text[:escapeLength]); err == nil {
		return plain, escapeLength
	}
	return asItIs(text)
}

func ofForm(text string) (string, int) {
	if text[0] == '+' {
		return " ", 1
	}
	return ofURL(text)
}

func ofJSON(text string) (string, int) {
	if text[0] != '\\' {
		return asItIs(text)
	}
	if len(text) < len(`\n`) || text[1] == 'u' && len(text) < len(`\u002B`) {
		return "", 0
	}
	if r, _, tail, err := strconv.UnquoteChar(text, '"'); err == nil {
		return string(r), len(text) - len(tail)
	}
	return text[1:2], len(`\/`)
}

func ofHTML(text string) (string, int) {
	if text[0] != '&' {
		return asItIs(text)
	}
	end := strings.IndexByte(text[:min(len(text), longestEntity)], ';')
	switch {
	case end > 0:
		return html.UnescapeString(text[:end+1]), end + 1
	case len(text) < longestEntity:
		return "", 0
	}
	return asItIs(text)
}
