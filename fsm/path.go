package fsm

import (
	"errors"
	"fmt"
	"strings"
)

// MaxPathLen bounds a stream path or pattern in bytes.
const MaxPathLen = 2048

// ErrPath is the cause of every error about a stream path.
var ErrPath = errors.New("not a stream path")

const upperHex = "0123456789ABCDEF"

// CanonicalPath is the one form in which a stream path is compared and stored: as it stands in the URL of a request,
// percent-encoding included. What a URL could not hold (spaces, quotes, characters beyond ASCII) is percent-encoded, a
// backslash is a slash, and "." and ".." segments are resolved, as the URL standard has every client and server do. It returns
// ErrPath if p is not absolute, is too long, has a query or a fragment, or holds a NUL.
func CanonicalPath(p string) (string, error) {
	switch {
	case !strings.HasPrefix(p, "/"):
		return "", fmt.Errorf("%w: it must begin with \"/\"", ErrPath)
	case len(p) > MaxPathLen:
		return "", fmt.Errorf("%w: it is longer than %d bytes", ErrPath, MaxPathLen)
	case strings.ContainsAny(p, "?#\x00"):
		return "", fmt.Errorf("%w: it must not hold \"?\", \"#\" or NUL", ErrPath)
	}
	p = escapeInvalid(strings.ReplaceAll(p, `\`, "/"))
	if strings.Contains(p, "/.") || strings.Contains(p, "/%2") {
		p = resolveDots(p)
	}
	if len(p) > MaxPathLen {
		return "", fmt.Errorf("%w: it is longer than %d bytes when percent-encoded", ErrPath, MaxPathLen)
	}
	return p, nil
}

// escapeInvalid percent-encodes the path percent-encode set of the URL standard.
func escapeInvalid(p string) string {
	bad := func(c byte) bool { return c <= ' ' || c >= 0x7f || strings.IndexByte("\"<>`{}", c) >= 0 }
	i := 0
	for i < len(p) && !bad(p[i]) {
		i++
	}
	if i == len(p) {
		return p
	}
	var b strings.Builder
	b.WriteString(p[:i])
	for ; i < len(p); i++ {
		if c := p[i]; bad(c) {
			b.Write([]byte{'%', upperHex[c>>4], upperHex[c&15]})
		} else {
			b.WriteByte(c)
		}
	}
	return b.String()
}

func resolveDots(p string) string {
	segments := strings.Split(p[1:], "/")
	out := segments[:0]
	for i, s := range segments {
		last := i == len(segments)-1
		switch dotted := strings.ReplaceAll(strings.ToLower(s), "%2e", "."); dotted {
		case ".", "..":
			if dotted == ".." && len(out) > 0 {
				out = out[:len(out)-1]
			}
			if last {
				out = append(out, "")
			}
		default:
			out = append(out, s)
		}
	}
	return "/" + strings.Join(out, "/")
}

// ConsumerID is the identity of the consumer that a subscription has for a stream: the path is encoded as JavaScript's
// encodeURIComponent does (webhook spec, Consumer Instance).
func ConsumerID(subscription, path string) string {
	var b strings.Builder
	b.Grow(len(subscription) + len(path) + 8)
	b.WriteString(subscription)
	b.WriteByte(':')
	for i := range len(path) {
		c := path[i]
		switch {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', strings.IndexByte("-_.!~*'()", c) >= 0:
			b.WriteByte(c)
		default:
			b.Write([]byte{'%', upperHex[c>>4], upperHex[c&15]})
		}
	}
	return b.String()
}

// ParseConsumerID splits a consumer ID, as it stands in the raw path of a callback URL, into the subscription's ID and
// the stream path. ok is false if it is not one that ConsumerID could have made.
func ParseConsumerID(id string) (subscription, path string, ok bool) {
	subscription, enc, found := strings.Cut(id, ":")
	if !found || ValidateSubscriptionID(subscription) != nil {
		return "", "", false
	}
	var b strings.Builder
	for i := 0; i < len(enc); i++ {
		if enc[i] != '%' {
			b.WriteByte(enc[i])
			continue
		}
		if i+2 >= len(enc) {
			return "", "", false
		}
		hi, lo := strings.IndexByte(upperHex, enc[i+1]), strings.IndexByte(upperHex, enc[i+2])
		if hi < 0 || lo < 0 {
			return "", "", false
		}
		b.WriteByte(byte(hi<<4 | lo))
		i += 2
	}
	path = b.String()
	return subscription, path, ConsumerID(subscription, path) == id && strings.HasPrefix(path, "/")
}

// ValidateSubscriptionID returns an error that says what is wrong with a subscription's ID.
func ValidateSubscriptionID(id string) error {
	if id == "" || len(id) > 128 {
		return errors.New("a subscription id has 1 to 128 characters")
	}
	for i := range len(id) {
		c := id[i]
		switch {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', strings.IndexByte("._~-", c) >= 0:
		default:
			return fmt.Errorf("a subscription id has only the characters A-Z a-z 0-9 . _ ~ -, not %q", c)
		}
	}
	return nil
}
