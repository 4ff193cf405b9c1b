package dispatcher

import (
	"cmp"
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

// mask takes the secrets of a subscription, and more of them, out of a text, such as the answer of its endpoint. Some
// endpoints repeat a request that they do not understand: as it came, or in the way of URLs, JSON or HTML. The text may
// end within a secret. The time grows with the length of the text, not with how much of it looks like a secret.
func mask(sub fsm.Subscription, text string, more ...string) string {
	return hide(text, secretsOf(sub, more))
}

// hide is mask with the secrets as they are.
func hide(text string, secrets []string) string {
	var hidden []extent
	for _, d := range decodings(text) {
		for _, secret := range secrets {
			hidden = d.find(hidden, text, secret)
		}
	}
	slices.SortFunc(hidden, func(a, b extent) int { return cmp.Or(a.from-b.from, b.to-a.to) })
	var b strings.Builder
	done := 0
	for i := 0; i < len(hidden); {
		h := hidden[i]
		for i++; i < len(hidden) && hidden[i].from < h.to; i++ {
			h.to = max(h.to, hidden[i].to)
		}
		b.WriteString(text[done:h.from])
		b.WriteString(masked)
		done = h.to
	}
	return b.String() + text[done:]
}

// secretsOf returns what mask takes out of a text.
func secretsOf(sub fsm.Subscription, more []string) (secrets []string) {
	values := slices.Concat(more, []string{sub.Secret, sub.Previous.Secret, sub.Authorization.Secret})
	for _, value := range sub.Headers {
		values = append(values, value)
	}
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
	slices.Sort(secrets)
	return slices.DeleteFunc(slices.Compact(secrets), func(s string) bool { return s == "" })
}

// extent is a part of a text, in bytes.
type extent struct{ from, to int }

// decoding is a text without an encoding. Byte i of plain comes from the character at at[i] of the text, and the last
// of at is where plain ends there. It is nil if plain is the text itself.
type decoding struct {
	plain string
	at    []int
}

// decodings returns what a text may stand for, in each encoding that it shows signs of.
func decodings(text string) []decoding {
	list := []decoding{{plain: text}}
	for _, e := range []struct {
		sign string
		read reader
	}{{"%", ofURL}, {"+", ofForm}, {`\`, ofJSON}, {`\\`, ofQuotedJSON}, {"&", ofHTML}} {
		if strings.Contains(text, e.sign) {
			list = append(list, decodedBy(text, e.read))
		}
	}
	return list
}

// decodedBy decodes a text, up to a character within which it ends.
func decodedBy(text string, read reader) decoding {
	at, plain, i := make([]int, 0, len(text)+1), make([]byte, 0, len(text)), 0
	for i < len(text) {
		part, length := read(text, i)
		if length == 0 {
			break
		}
		for range len(part) {
			at = append(at, i)
		}
		plain = append(plain, part...)
		i += length
	}
	return decoding{string(plain), append(at, i)}
}

// place returns where some bytes of plain stand in the text.
func (d decoding) place(from, to int) extent {
	if d.at == nil {
		return extent{from, to}
	}
	last := d.at[to-1]
	for to < len(d.at)-1 && d.at[to] == last { // the rest of a character
		to++
	}
	return extent{d.at[from], d.at[to]}
}

// find adds where a secret stands in a text.
func (d decoding) find(hidden []extent, text, secret string) []extent {
	for i := 0; ; {
		n := strings.Index(d.plain[i:], secret)
		if n < 0 {
			break
		}
		e := d.place(i+n, i+n+len(secret))
		if i += n; len(secret) >= leastSecret || isWord(text, e.from, e.to) {
			hidden = append(hidden, e)
			i += len(secret)
		} else {
			i++
		}
	}
	for n := min(len(secret)-1, len(d.plain)); n >= leastSecret; n-- {
		if strings.HasSuffix(d.plain, secret[:n]) {
			return append(hidden, extent{d.place(len(d.plain)-n, len(d.plain)).from, len(text)})
		}
	}
	return hidden
}

// isWord says whether text[i:end] has no letter and no digit beside it.
func isWord(text string, i, end int) bool {
	return (i == 0 || !isWordByte(text[i-1])) && (end == len(text) || !isWordByte(text[end]))
}

func isWordByte(c byte) bool {
	return '0' <= c && c <= '9' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || c == '_' || c >= utf8.RuneSelf
}

// A reader returns the character at an index of a text, in bytes, and how many bytes it takes in the text. It returns 0
// if the text ends too early.
type reader func(text string, at int) (plain string, n int)

func asItIs(text string, at int) (string, int) { return text[at : at+1], 1 }

// escapeLength is the length of an escape of ofURL, longestEntity the greatest length of an entity of ofHTML.
const escapeLength, longestEntity = len("%2B"), len("&quot;")

func ofURL(text string, at int) (string, int) {
	switch {
	case text[at] != '%':
		return asItIs(text, at)
	case len(text)-at < escapeLength:
		return "", 0
	}
	if plain, err := url.PathUnescape(text[at : at+escapeLength]); err == nil {
		return plain, escapeLength
	}
	return asItIs(text, at)
}

func ofForm(text string, at int) (string, int) {
	if text[at] == '+' {
		return " ", 1
	}
	return ofURL(text, at)
}

func ofJSON(text string, at int) (string, int) {
	rest := text[at:]
	if rest[0] != '\\' {
		return asItIs(text, at)
	}
	if len(rest) < len(`\n`) || rest[1] == 'u' && len(rest) < len(`\u002B`) {
		return "", 0
	}
	if r, _, tail, err := strconv.UnquoteChar(rest, '"'); err == nil {
		return string(r), len(rest) - len(tail)
	}
	return rest[1:2], len(`\/`)
}

// ofQuotedJSON is ofJSON for JSON in a text that has a backslash before it: the second of several begins an escape.
func ofQuotedJSON(text string, at int) (string, int) {
	if strings.HasPrefix(text[at:], `\\`) && (at == 0 || text[at-1] != '\\') {
		return asItIs(text, at)
	}
	return ofJSON(text, at)
}

func ofHTML(text string, at int) (string, int) {
	if text[at] != '&' {
		return asItIs(text, at)
	}
	rest := text[at:]
	end := strings.IndexByte(rest[:min(len(rest), longestEntity)], ';')
	switch {
	case end > 0:
		return html.UnescapeString(rest[:end+1]), end + 1
	case len(rest) < longestEntity:
		return "", 0
	}
	return asItIs(text, at)
}
