package dispatcher

import (
	"html"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"reveille/fsm"
)

const (
	// leastSecret is the length in bytes from which a secret is masked wherever it stands. A shorter value, such as
	// "1", stands in texts by chance: it is masked only as a word of its own. If a text ends within a secret, a part of
	// this length is enough.
	leastSecret = 4
	// leastPart is the length in bytes from which a part of a path, or of a signature, counts as a secret.
	leastPart = 12
	masked    = "[masked]"
)

// carried returns the secrets of a request that are not its subscription's: the token of a wake, and its signatures.
func (a *attempt) carried() (secrets []string) {
	secrets = append(secrets, a.content.Token)
	for name, values := range a.request.Header {
		if !strings.Contains(strings.ToLower(name), "signature") {
			continue
		}
		for _, part := range strings.Fields(strings.ReplaceAll(strings.Join(values, " "), ",", " ")) {
			if _, value, named := strings.Cut(part, "="); named && value != "" && !strings.HasPrefix(value, "=") {
				part = value
			}
			if len(part) >= leastPart {
				secrets = append(secrets, part)
			}
		}
	}
	return secrets
}

// mask takes the secrets of a subscription, and more of them, out of the answer of its endpoint. Some endpoints repeat
// a request that they do not understand: as it came, or in the way of URLs, JSON or HTML. The text may end within a
// secret.
func mask(sub fsm.Subscription, text string, more ...string) string {
	values := slices.Concat(more, []string{sub.Secret, sub.Previous.Secret, sub.Authorization.Secret})
	for _, value := range sub.Headers {
		values = append(values, value)
	}
	var secrets []string
	for _, value := range values {
		_, credentials, _ := strings.Cut(value, " ") // behind the scheme, such as Bearer
		secrets = append(secrets, value, credentials)
	}
	if u, err := url.Parse(sub.Webhook); err == nil {
		for part := range strings.SplitSeq(u.Path, "/") {
			if len(part) >= leastPart {
				secrets = append(secrets, part)
			}
		}
		for _, values := range u.Query() {
			for _, value := range values {
				if len(value) >= leastSecret {
					secrets = append(secrets, value)
				}
			}
		}
	}
	secrets = slices.DeleteFunc(secrets, func(s string) bool { return s == "" })
	var b strings.Builder
	for i := 0; i < len(text); {
		n := 0
		for _, secret := range secrets {
			if l := lengthOf(secret, text[i:]); len(secret) >= leastSecret || isWord(text, i, i+l) {
				n = max(n, l)
			}
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

// isWord says whether text[i:end] has no letter and no digit beside it.
func isWord(text string, i, end int) bool {
	return (i == 0 || !isWordByte(text[i-1])) && (end == len(text) || !isWordByte(text[end]))
}

func isWordByte(c byte) bool {
	return '0' <= c && c <= '9' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || c == '_' || c >= utf8.RuneSelf
}

// lengthOf returns how many bytes of a text a secret takes at its beginning, in any encoding; 0 if the secret is not
// there.
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
		if known >= min(len(secret), leastSecret) {
			longest = max(longest, length)
		}
	}
	return longest
}

// A reader returns the first byte or character of a text that is not empty, and how many bytes it takes in the text. It
// returns 0 if the text ends too early.
type reader func(text string) (plain string, n int)

func asItIs(text string) (string, int) { return text[:1], 1 }

// escapeLength is the length of an escape of ofURL, longestEntity the greatest length of an entity of ofHTML.
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
