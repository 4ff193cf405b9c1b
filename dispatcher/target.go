package dispatcher

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"reveille/fsm"
)

const (
	// maxTargetLen bounds a webhook URL in bytes.
	maxTargetLen = 4096
	// resolveTimeout bounds how long the creation of a subscription waits for the name of its webhook.
	resolveTimeout = 2 * time.Second
)

// metadataNames lead to metadata addresses where they resolve at all. The refusal must not tell the creator of a
// subscription whether they do.
var metadataNames = map[string]bool{
	"metadata":                   true,
	"metadata.google.internal":   true,
	"metadata.goog":              true,
	"metadata.azure.internal":    true,
	"metadata.tencentyun.com":    true,
	"instance-data":              true,
	"instance-data.ec2.internal": true,
}

// target is a webhook URL that could be read. Either addr is valid or name is not empty.
type target struct {
	url  *url.URL
	addr netip.Addr
	name string
}

// checkTarget judges a webhook URL, and what its host resolves to at this moment. A name that does not resolve is no
// error, since the dial judges the address again.
func (g *guard) checkTarget(ctx context.Context, raw string) error {
	t, err := g.parseTarget(raw)
	if err != nil || t.addr.IsValid() {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, resolveTimeout)
	defer cancel()
	addrs, err := g.resolver.LookupNetIP(ctx, "ip", t.name)
	if err != nil {
		return nil
	}
	for _, a := range addrs {
		if g.judge(a) != nil {
			// The error does not name the address: it must not tell what names mean inside this network.
			return fmt.Errorf("webhook host %q resolves to an address to which wakes may not be sent", t.name)
		}
	}
	return nil
}

// parseTarget judges a webhook URL as far as that needs no resolver. Each error is one sentence that begins with
// "webhook".
func (g *guard) parseTarget(raw string) (target, error) {
	switch {
	case raw == "":
		return target{}, errors.New("webhook is missing")
	case len(raw) > maxTargetLen:
		return target{}, fmt.Errorf("webhook is longer than %d bytes", maxTargetLen)
	}
	u, err := url.Parse(raw)
	if err != nil {
		// Take the cause of url.Error: the error itself repeats the URL with all that is in it.
		var cause *url.Error
		if errors.As(err, &cause) {
			err = cause.Err
		}
		return target{}, fmt.Errorf("webhook is not a URL: %w", err)
	}
	switch {
	case u.Scheme == "" || u.Opaque != "":
		return target{}, errors.New("webhook must be an absolute URL such as https://example.com/hook")
	case u.Scheme == "http" && !g.allowInsecure:
		return target{}, errors.New(
			"webhook must use https, not http (only REVEILLE_ALLOW_INSECURE_WEBHOOKS=true allows it)",
		)
	case u.Scheme != "https" && u.Scheme != "http":
		return target{}, fmt.Errorf("webhook must use https, not %q", u.Scheme)
	case u.User != nil:
		return target{}, errors.New("webhook must not carry a user name or a password")
	case u.Hostname() == "":
		return target{}, errors.New("webhook has no host")
	case strings.Contains(raw, "#"):
		return target{}, errors.New("webhook must not have a fragment (\"#\" and what follows)")
	}
	if p := u.Port(); p != "" {
		if n, err := strconv.ParseUint(p, 10, 16); err != nil || n == 0 {
			return target{}, fmt.Errorf("webhook port %q is not a number from 1 to 65535", p)
		}
	}
	t, err := g.parseHost(u)
	if err != nil {
		return target{}, fmt.Errorf("webhook host %q %w", u.Hostname(), err)
	}
	return t, nil
}

// requestURL returns a webhook URL as it goes into a request. In the path and the query, spaces, control characters and
// bytes beyond ASCII are percent-encoded, as a browser does (RFC 3987, section 3.1). The rest stays as it was written.
// net/http takes care of the host.
func requestURL(webhook string) string {
	_, host, _ := strings.Cut(webhook, "://")
	rest := strings.IndexAny(host, "/?")
	if rest < 0 {
		return webhook
	}
	var b strings.Builder
	at := len(webhook) - len(host) + rest
	b.WriteString(webhook[:at])
	for _, c := range []byte(webhook[at:]) {
		if c > ' ' && c < utf8.RuneSelf {
			b.WriteByte(c)
		} else {
			fmt.Fprintf(&b, "%%%02X", c)
		}
	}
	return b.String()
}

// parseHost judges the host of a webhook in every notation that a resolver might read as an address. Its errors
// continue a sentence that began with the host.
func (g *guard) parseHost(u *url.URL) (target, error) {
	host := u.Hostname()
	if strings.HasPrefix(u.Host, "[") {
		ip, err := netip.ParseAddr(host)
		switch {
		case err != nil || !ip.Is6():
			return target{}, errors.New("is not an IPv6 address")
		case ip.Zone() != "":
			return target{}, errors.New("must not have a zone")
		}
		return target{url: u, addr: ip}, g.judgeLiteral(ip)
	}
	if ip, err := netip.ParseAddr(host); err == nil && ip.Is4() {
		return target{url: u, addr: ip}, g.judgeLiteral(ip)
	}
	name, err := fsm.HostName(host)
	if err != nil {
		return target{}, err
	}
	switch {
	case endsInNumber(name):
		return target{}, errors.New("is neither a name nor an IPv4 address of four plain decimal numbers")
	case metadataNames[name]:
		return target{}, errors.New("is a cloud metadata service")
	case name == "localhost" || strings.HasSuffix(name, ".localhost"):
		if err := g.judge(netip.AddrFrom4([4]byte{127, 0, 0, 1})); err != nil {
			return target{}, errors.New("is this machine itself; wakes may not be sent there")
		}
	}
	return target{url: u, name: name}, nil
}

func (g *guard) judgeLiteral(ip netip.Addr) error {
	if err := g.judge(ip); err != nil {
		return fmt.Errorf("is not allowed: %w", err)
	}
	return nil
}

// endsInNumber is the URL standard's "ends in a number" check. Some resolvers read such hosts as IPv4 addresses:
// decimal (2130706433), hexadecimal (0x7f000001), octal (0177.0.0.1) or short (127.1).
func endsInNumber(name string) bool {
	last := name[strings.LastIndexByte(name, '.')+1:]
	digits := "0123456789"
	if hex, ok := strings.CutPrefix(last, "0x"); ok {
		last, digits = hex, "0123456789abcdef"
	}
	return strings.Trim(last, digits) == ""
}
