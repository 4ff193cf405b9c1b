package fsm

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"strings"

	"golang.org/x/net/idna"
)

// Origin returns the origin of the webhook, or "" if the webhook has none.
func (s Subscription) Origin() string {
	u, err := url.Parse(s.Webhook)
	if err != nil {
		return ""
	}
	return Origin(u)
}

// Origin returns the scheme, host and port of a URL, in the same form however they are written. It returns "" if the
// host is no valid name.
func Origin(u *url.URL) string {
	ports := map[string]string{"https": "443", "http": "80"}
	host, port := u.Hostname(), cmp.Or(strings.TrimLeft(u.Port(), "0"), ports[u.Scheme])
	if ip, err := netip.ParseAddr(host); err == nil {
		host = Translated(ip).String()
	} else if host, err = HostName(host); err != nil {
		return ""
	}
	return u.Scheme + "://" + net.JoinHostPort(host, port)
}

// nat64 has the addresses by which NAT64 leads to an IPv4 address (RFC 6052).
var nat64 = netip.MustParsePrefix("64:ff9b::/96")

// Translated returns the IPv4 address that an IPv6 address stands for: IPv4-mapped (RFC 4291), or through NAT64. It
// returns any other address unchanged. Whole ranges that carry IPv4 addresses, such as 6to4 and Teredo, are not for
// public use.
func Translated(ip netip.Addr) netip.Addr {
	ip = ip.Unmap()
	if nat64.Contains(ip) {
		b := ip.As16()
		return netip.AddrFrom4([4]byte(b[12:]))
	}
	return ip
}

// HostName returns a host name as it goes to the resolver: in lower case, without a dot at its end. It maps names
// beyond ASCII as net/http does, so digits and dots in disguise come out as plain ones.
func HostName(host string) (string, error) {
	name := host
	for i := range len(host) {
		if host[i] >= 0x80 {
			var err error
			if name, err = idna.Lookup.ToASCII(host); err != nil {
				return "", errors.New("is not a valid host name")
			}
			break
		}
	}
	name = strings.ToLower(strings.TrimSuffix(name, "."))
	if len(name) > 253 {
		return "", errors.New("is longer than 253 characters")
	}
	for label := range strings.SplitSeq(name, ".") {
		if label == "" || len(label) > 63 {
			return "", errors.New("is not a valid host name: between dots there are 1 to 63 characters")
		}
		for i := range len(label) {
			switch c := label[i]; {
			case 'a' <= c && c <= 'z', '0' <= c && c <= '9', c == '-', c == '_':
			default:
				return "", fmt.Errorf("is not a valid host name: %q is not allowed in it", c)
			}
		}
	}
	return name, nil
}
