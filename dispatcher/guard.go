package dispatcher

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"syscall"

	"code.dny.dev/ssrf"

	"reveille/fsm"
)

// errProhibited is the cause of an error about an address that wakes may not be sent to.
var errProhibited = errors.New("prohibited address")

// insecurePrefixes are the ranges that AllowInsecure opens: this machine and private networks, but nothing link-local.
var insecurePrefixes = []netip.Prefix{
	netip.MustParsePrefix("127.0.0.0/8"),
	netip.MustParsePrefix("10.0.0.0/8"),
	netip.MustParsePrefix("172.16.0.0/12"),
	netip.MustParsePrefix("192.168.0.0/16"),
	netip.MustParsePrefix("100.64.0.0/10"),
	netip.MustParsePrefix("::1/128"),
	netip.MustParsePrefix("fc00::/7"),
}

// metadataAddrs answer with the credentials of the machine. Some lie in private or even public ranges. So each is
// refused by itself, whatever is allowed around it.
var metadataAddrs = []netip.Addr{
	netip.MustParseAddr("169.254.169.254"), // AWS, Google, Azure, Oracle, OpenStack and others
	netip.MustParseAddr("169.254.170.2"),   // AWS ECS task credentials
	netip.MustParseAddr("169.254.170.23"),  // AWS EKS pod identity
	netip.MustParseAddr("fd00:ec2::254"),   // AWS
	netip.MustParseAddr("fd00:ec2::23"),    // AWS EKS pod identity
	netip.MustParseAddr("fd20:ce::254"),    // Google
	netip.MustParseAddr("168.63.129.16"),   // Azure's wire server
	netip.MustParseAddr("100.100.100.200"), // Alibaba
	netip.MustParseAddr("169.254.0.23"),    // Tencent
	netip.MustParseAddr("169.254.42.42"),   // Scaleway
	netip.MustParseAddr("fd00:42::42"),     // Scaleway
}

// guard decides which addresses wakes may be sent to (webhook spec, SSRF Prevention). It is safe for concurrent use.
type guard struct {
	allowInsecure bool
	// named are the single addresses among the allowed prefixes. Only these open a metadata address.
	named    []netip.Addr
	guardian *ssrf.Guardian
	resolver *net.Resolver
}

func newGuard(allowInsecure bool, allow []netip.Prefix, resolver *net.Resolver) *guard {
	g := &guard{allowInsecure: allowInsecure, resolver: resolver}
	var v4, v6 []netip.Prefix
	add := func(p netip.Prefix) {
		if p.Addr().Is4() {
			v4 = append(v4, p)
		} else {
			v6 = append(v6, p)
		}
	}
	for _, p := range allow {
		if p.Addr().Is4In6() && p.Bits() >= 96 {
			p = netip.PrefixFrom(p.Addr().Unmap(), p.Bits()-96)
		}
		add(p)
		if p.IsSingleIP() {
			g.named = append(g.named, p.Addr())
		}
	}
	if allowInsecure {
		for _, p := range insecurePrefixes {
			add(p)
		}
	}
	g.guardian = ssrf.New(ssrf.WithAnyPort(), ssrf.WithAllowedV4Prefixes(v4...), ssrf.WithAllowedV6Prefixes(v6...))
	return g
}

// judge returns an error that wraps errProhibited if wakes may not be sent to an address, or to the IPv4 address that
// it carries.
func (g *guard) judge(ip netip.Addr) error {
	ip = fsm.Translated(ip.WithZone(""))
	if err := g.judgeOne(ip); err != nil {
		return err
	}
	if inner, ok := tunneled(ip); ok {
		return g.judgeOne(inner)
	}
	return nil
}

func (g *guard) judgeOne(ip netip.Addr) error {
	if slices.Contains(metadataAddrs, ip) && !slices.Contains(g.named, ip) {
		return fmt.Errorf("%w: %s is a cloud metadata address", errProhibited, ip)
	}
	if g.guardian.SafeAddr(ip) != nil {
		return fmt.Errorf("%w: %s is %s", errProhibited, ip, kindOf(ip))
	}
	return nil
}

// tunneled returns the IPv4 address to which ISATAP sends the packets of an IPv6 address. Such an IPv6 address can have
// any prefix, even a public one. Its second half identifies it (RFC 5214, section 6.1).
func tunneled(ip netip.Addr) (netip.Addr, bool) {
	b := ip.As16()
	const universal = 0x02 // a bit that may be set
	if !ip.Is6() || b[8]&^universal != 0 || b[9] != 0 || b[10] != 0x5e || b[11] != 0xfe {
		return netip.Addr{}, false
	}
	return netip.AddrFrom4([4]byte(b[12:])), true
}

func kindOf(ip netip.Addr) string {
	switch {
	case ip.IsUnspecified():
		return "the unspecified address"
	case ip.IsLoopback():
		return "a loopback address"
	case ip.IsPrivate():
		return "a private address"
	case ip.IsLinkLocalUnicast():
		return "a link-local address"
	case ip.IsMulticast():
		return "a multicast address"
	}
	return "in a range that is not for public use"
}

// control is for net.Dialer: it judges each address that is dialled, whatever a name resolved to before.
func (g *guard) control(_ context.Context, _, address string, _ syscall.RawConn) error {
	ap, err := netip.ParseAddrPort(address)
	if err != nil {
		return fmt.Errorf("%w: cannot be read", errProhibited)
	}
	return g.judge(ap.Addr())
}
