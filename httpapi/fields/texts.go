package fields

import (
	"maps"
	"net/http"
	"slices"
	"strings"
	"unicode"

	"reveille/fsm"
	"reveille/httpapi/refusal"
	"reveille/httpapi/web"
)

const (
	maxHeaders     = 20
	maxHeaderValue = 4096
	// maxHeaderBytes bounds the names and values of all headers together. Some servers accept no more than 8 KiB, and
	// other headers come on top.
	maxHeaderBytes = 8192

	maxMetadata      = 50
	maxMetadataKey   = 128
	maxMetadataValue = 1024
)

// reservedHeaders are the headers that a subscription cannot have. Reveille or its HTTP client sets them, or they say
// who sends the request and how to read or answer it. A name that ends in "-" is a prefix.
var reservedHeaders = []string{
	"Accept-Encoding", "Ce-", "Connection", "Content-Encoding", "Content-Length", "Content-Type", "Expect", "Forwarded",
	"Host", "Keep-Alive", "Origin", "Proxy-", "Reveille-", "Te", "Traceparent", "Tracestate", "Trailer",
	"Transfer-Encoding", "Upgrade", "User-Agent", "Webhook-", "X-Forwarded-", "X-Ojs-",
}

// texts is a merge patch (RFC 7396) of a map of strings: nil removes a key, and a nil map removes all keys.
type texts map[string]*string

// readTexts reads a field that is such a patch. Its errors hold no value of it.
func readTexts(o web.Object, name string) (texts, error) {
	fields, named, err := web.Optional[web.Object](o, name, "an object of strings")
	if !named || err != nil {
		return nil, err
	}
	patch := make(texts, len(fields))
	for _, key := range slices.Sorted(maps.Keys(fields)) {
		if web.IsNull(fields[key]) {
			patch[key] = nil
			continue
		}
		text, err := web.Value[string](fields[key], name+"."+refusal.Clipped(key), "a string")
		if err != nil {
			return nil, err
		}
		patch[key] = &text
	}
	return patch, nil
}

// of returns the result of the patch on a map, which stays as it is.
func (patch texts) of(was map[string]string) map[string]string {
	if patch == nil {
		return nil
	}
	merged := maps.Clone(was)
	if merged == nil {
		merged = map[string]string{}
	}
	for key, text := range patch {
		if text == nil {
			delete(merged, key)
		} else {
			merged[key] = *text
		}
	}
	return merged
}

func (Reader) readHeaders(o web.Object) (setting, error) {
	asked, err := readTexts(o, "headers")
	if err != nil {
		return nil, err
	}
	patch, err := asked.canonical()
	if err != nil {
		return nil, err
	}
	return func(sub *fsm.Subscription) error {
		merged := patch.of(sub.Headers)
		switch {
		case len(merged) > maxHeaders:
			return refusal.New(fsm.CodeInvalidRequest, "headers must have at most %d names", maxHeaders)
		case headerBytes(merged) > maxHeaderBytes:
			return refusal.New(fsm.CodeInvalidRequest, "headers must have at most %d bytes of names and values",
				maxHeaderBytes)
		}
		sub.Headers = merged
		return nil
	}, nil
}

// showHeaders shows the names: a value may be a secret.
func showHeaders(headers any) any { return slices.Sorted(maps.Keys(headers.(map[string]string))) }

// canonical returns the patch with the names as they are sent, or refuses a name or a value.
func (patch texts) canonical() (texts, error) {
	if patch == nil {
		return nil, nil
	}
	canonical := make(texts, len(patch))
	for _, name := range slices.Sorted(maps.Keys(patch)) {
		if !isToken(name) {
			return nil, refusal.New(fsm.CodeInvalidRequest, "headers has %q, which is not the name of a header",
				refusal.Clipped(name))
		}
		sent := http.CanonicalHeaderKey(name)
		if !settable(sent) {
			return nil, refusal.New(fsm.CodeInvalidRequest,
				"headers has %s, which a subscription cannot set", refusal.Clipped(sent))
		}
		if _, twice := canonical[sent]; twice {
			return nil, refusal.New(fsm.CodeInvalidRequest, "headers has %s in two spellings", refusal.Clipped(sent))
		}
		if text := patch[name]; text != nil {
			if err := checkHeaderValue("headers."+refusal.Clipped(name), *text); err != nil {
				return nil, err
			}
		}
		canonical[sent] = patch[name]
	}
	return canonical, nil
}

// checkHeaderValue refuses what cannot be the value of a header. The argument name is the name of the field. A space at
// an end is no part of a value: it would not be sent.
func checkHeaderValue(name, text string) error {
	if text != strings.Trim(text, " ") {
		return refusal.New(fsm.CodeInvalidRequest, "%s begins or ends with a space", name)
	}
	return checkText(name, text)
}

// checkText refuses a text that is too long for a request, or that could end a line of it.
func checkText(name, text string) error {
	switch {
	case len(text) > maxHeaderValue:
		return refusal.New(fsm.CodeInvalidRequest, "%s is longer than %d bytes", name, maxHeaderValue)
	case strings.ContainsFunc(text, unicode.IsControl):
		return refusal.New(fsm.CodeInvalidRequest, "%s has a control character", name)
	}
	return nil
}

func headerBytes(headers map[string]string) (n int) {
	for name, text := range headers {
		n += len(name) + len(text)
	}
	return n
}

// settable says whether a subscription can have a header of this canonical name. Servers that hand headers on as
// variables take "_" for "-" (CGI, RFC 3875, section 4.1.18).
func settable(header string) bool {
	header = http.CanonicalHeaderKey(strings.ReplaceAll(header, "_", "-"))
	return !slices.ContainsFunc(reservedHeaders, func(name string) bool {
		return header == name || strings.HasSuffix(name, "-") && strings.HasPrefix(header, name)
	})
}

// isToken says whether a text can be the name of a header (RFC 9110, Tokens).
func isToken(name string) bool {
	return name != "" && !strings.ContainsFunc(name, func(r rune) bool {
		letter := 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z'
		return !letter && !('0' <= r && r <= '9') && !strings.ContainsRune("!#$%&'*+-.^_`|~", r)
	})
}

func (Reader) readMetadata(o web.Object) (setting, error) {
	patch, err := readTexts(o, "metadata")
	if err != nil {
		return nil, err
	}
	for _, key := range slices.Sorted(maps.Keys(patch)) {
		switch text := patch[key]; {
		case key == "":
			return nil, refusal.New(fsm.CodeInvalidRequest, "metadata has an empty key")
		case len(key) > maxMetadataKey:
			return nil, refusal.New(fsm.CodeInvalidRequest, "metadata has the key %q, which is longer than %d bytes",
				refusal.Clipped(key), maxMetadataKey)
		case text != nil && len(*text) > maxMetadataValue:
			return nil, refusal.New(fsm.CodeInvalidRequest, "metadata.%s is longer than %d bytes", refusal.Clipped(key),
				maxMetadataValue)
		}
	}
	return func(sub *fsm.Subscription) error {
		merged := patch.of(sub.Metadata)
		if len(merged) > maxMetadata {
			return refusal.New(fsm.CodeInvalidRequest, "metadata must have at most %d keys", maxMetadata)
		}
		sub.Metadata = merged
		return nil
	}, nil
}
