package fsm

import (
	"cmp"
	"errors"
	"fmt"
	"path"
	"strconv"
	"strings"
)

// MaxPathLen bounds a stream path or pattern in bytes.
const MaxPathLen = 2048

// ErrPath is the cause of every error about a stream path.
var ErrPath = errors.New("not a stream path")

// Why a path is not a stream's. CanonicalPath wraps them together with ErrPath, ParsePattern together with ErrPattern.
var (
	// ErrOutsideRoot: ".." segments lead out of the stream root. Other resources on that host are not for our clients.
	ErrOutsideRoot = errors.New("it leads out of the stream root")
	// ErrReservedPath: control resources of the stream server live there (ds spec, Addressing).
	ErrReservedPath = errors.New("the segment \"" + ReservedSegment + "\" is reserved")
	// ErrEmptySegment: servers and URL libraries disagree about "//": some merge the slashes, some read a host.
	ErrEmptySegment = errors.New("it has an empty segment (\"//\")")
	// ErrWildcard: no pattern matches a literal "*" (webhook spec, Glob Patterns).
	ErrWildcard = errors.New("\"*\" is a wildcard and cannot be part of a stream's name")
	// ErrPathTooLong: the path is longer than MaxPathLen.
	ErrPathTooLong = fmt.Errorf("it is longer than %d bytes when percent-encoded", MaxPathLen)
)

// ReservedSegment cannot be a segment of a stream path.
const ReservedSegment = "__ds"

// decodings is how often an encoded path is decoded in search of ".." and reserved segments. A server decodes once, and
// a proxy before it perhaps once more.
const decodings = 3

const upperHex = "0123456789ABCDEF"

// CanonicalPath returns the one form in which a stream path is requested, compared and stored: the normal form of RFC
// 3986, section 6. It decodes percent-encoded characters that need no encoding: letters, digits, "-", ".", "_" and "~".
// The digits of the other encodings become upper case, and "." and ".." segments are resolved. An encoded slash stays
// encoded. As in the URL standard, what a URL cannot hold (spaces, quotes, characters beyond ASCII) is percent-encoded,
// and a backslash becomes a slash.
//
// It is the one rule for which paths are streams. The gateway, names, callbacks, the registry and (by ParsePattern)
// patterns all follow it. Its errors wrap ErrPath and one of the reasons above. An error may also say that p is not
// absolute, or holds a query, a fragment or a NUL.
func CanonicalPath(p string) (string, error) {
	raw, err := escaped(p)
	if err == nil {
		raw = normalized(raw)
		err = cmp.Or(reachable(raw), plain(raw))
	}
	if err != nil {
		return "", fmt.Errorf("%w: %w", ErrPath, err)
	}
	return finish(raw)
}

// ForwardedPath is CanonicalPath for a request that is not for a stream but may pass: a longer path, or a path with a
// literal "*". For all other paths it returns the errors of CanonicalPath.
func ForwardedPath(p string) (string, error) {
	raw, err := escaped(p)
	if err == nil {
		raw = normalized(raw)
		err = reachable(raw)
	}
	if err == nil && strings.Contains(raw, "//") {
		err = ErrEmptySegment
	}
	if err != nil {
		return "", fmt.Errorf("%w: %w", ErrPath, err)
	}
	return resolveDots(raw), nil
}

// escaped turns backslashes into slashes and percent-encodes what a URL cannot hold.
func escaped(p string) (string, error) {
	switch {
	case !strings.HasPrefix(p, "/"):
		return "", errors.New("it must begin with \"/\"")
	case strings.ContainsAny(p, "?#\x00"):
		return "", errors.New("it must not hold \"?\", \"#\" or NUL")
	}
	return escapeInvalid(strings.ReplaceAll(p, `\`, "/")), nil
}

// normalized decodes the percent-encoded characters that need no encoding, and writes the digits of the others in upper
// case. A decoded character may complete an encoding whose "%" stood alone: the result is an encoding, too. Each byte
// is looked at once, because a client chooses the path.
func normalized(p string) string {
	if !strings.Contains(p, "%") {
		return p
	}
	b := make([]byte, 0, len(p))
	for i := range len(p) {
		b = append(b, p[i])
		for len(b) >= escapeLen {
			at := len(b) - escapeLen
			c, ok := encodedAt(string(b[at:]), 0)
			if !ok {
				break
			}
			if !isUnreserved(c) {
				b = append(b[:at], '%', upperHex[c>>4], upperHex[c&15])
				break
			}
			b = append(b[:at], c)
		}
	}
	return string(b)
}

// escapeLen is the length of a percent-encoded byte.
const escapeLen = len("%2F")

// encodedAt returns the character that is percent-encoded at a position, if there is one.
func encodedAt(p string, i int) (c byte, ok bool) {
	if p[i] != '%' || i+2 >= len(p) {
		return 0, false
	}
	n, err := strconv.ParseUint(p[i+1:i+3], 16, 8)
	return byte(n), err == nil
}

// isUnreserved says whether a character is one that RFC 3986, section 2.3, calls unreserved.
func isUnreserved(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || strings.IndexByte("-._~", c) >= 0
}

// finish resolves dot segments and bounds the length.
func finish(p string) (string, error) {
	if strings.Contains(p, "/.") || strings.Contains(p, "/%2") {
		p = resolveDots(p)
	}
	if len(p) > MaxPathLen {
		return "", fmt.Errorf("%w: %w", ErrPath, ErrPathTooLong)
	}
	return p, nil
}

// reachable returns why a path must not be requested from a stream server, whichever way the server reads encoded
// characters.
func reachable(p string) error {
	for range decodings {
		if err := segmentsOf(p); err != nil {
			return err
		}
		next := decoded(p)
		if next == p {
			return nil
		}
		p = strings.ReplaceAll(next, `\`, "/")
	}
	return segmentsOf(p)
}

// Within says whether a path may be the root or lie below it, whichever way a server reads encoded characters.
func Within(p, root string) bool {
	for range decodings + 1 {
		p = path.Clean(strings.ReplaceAll(p, `\`, "/"))
		if p == root || strings.HasPrefix(p, root+"/") {
			return true
		}
		p = decoded(p)
	}
	return false
}

func segmentsOf(p string) error {
	depth, reserved := 0, false
	for s := range strings.SplitSeq(p, "/") {
		switch undot(s) {
		case "", ".":
		case "..":
			if depth--; depth < 0 {
				return ErrOutsideRoot
			}
		case ReservedSegment:
			reserved = true
			depth++
		default:
			depth++
		}
	}
	if reserved {
		return ErrReservedPath
	}
	return nil
}

// plain returns why an escaped path cannot be a stream's name, although a server could be asked for it.
func plain(p string) error {
	switch {
	case strings.Contains(p, "//"):
		return ErrEmptySegment
	case hasWildcard(p):
		return ErrWildcard
	}
	return nil
}

func hasWildcard(p string) bool {
	return strings.Contains(p, "*") || strings.Contains(p, "%2A") || strings.Contains(p, "%2a")
}

// undot decodes the dots of a segment that is nothing but dots.
func undot(segment string) string {
	if strings.Contains(segment, "%2") {
		if dots := strings.ReplaceAll(strings.ToLower(segment), "%2e", "."); dots == "." || dots == ".." {
			return dots
		}
	}
	return segment
}

// decoded resolves each percent-encoding once and leaves what is malformed.
func decoded(p string) string {
	if !strings.Contains(p, "%") {
		return p
	}
	b := make([]byte, 0, len(p))
	for i := 0; i < len(p); i++ {
		c, ok := encodedAt(p, i)
		if !ok {
			b = append(b, p[i])
			continue
		}
		b = append(b, c)
		i += 2
	}
	return string(b)
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
		switch dotted := undot(s); dotted {
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

// ConsumerID is the ID of the consumer that a subscription has for a stream. The path is encoded as JavaScript's
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
// the stream path. The result ok is false if ConsumerID could not have made the ID.
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

// AsideID is the ID of the aside that a consumer gets for the delivery of an epoch, or for what has a number in its
// replay queue. It is no ConsumerID: a ConsumerID has one colon.
func AsideID(owner string, number int64) string {
	return owner + ":" + strconv.FormatInt(number, 10)
}

// ParseAnyConsumerID is ParseConsumerID for the ID of a consumer or of an aside. It is for an ID that comes from
// outside: it says where the store would keep the consumer. Consumer.Owner says whether one is an aside.
func ParseAnyConsumerID(id string) (subscription, path string, ok bool) {
	last := strings.LastIndexByte(id, ':')
	if last < 0 || strings.IndexByte(id, ':') == last {
		return ParseConsumerID(id)
	}
	if number, err := strconv.ParseInt(id[last+1:], 10, 64); err != nil || AsideID(id[:last], number) != id {
		return "", "", false
	}
	return ParseConsumerID(id[:last])
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
