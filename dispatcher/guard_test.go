package dispatcher

import (
	"context"
	"encoding/hex"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"

	"reveille/fsm"
)

func prefixes(ss ...string) []netip.Prefix {
	var ps []netip.Prefix
	for _, s := range ss {
		ps = append(ps, netip.MustParsePrefix(s))
	}
	return ps
}

// names is a DNS server on 127.0.0.1. The number of the question decides the addresses of a name; the last ones stay
// for good.
type names struct {
	answers map[string][][]string

	mu    sync.Mutex
	asked map[string]int
}

func startDNS(t *testing.T, answers map[string][][]string) *net.Resolver {
	t.Helper()
	resolver, _ := startNames(t, answers)
	return resolver
}

func startNames(t *testing.T, answers map[string][][]string) (*net.Resolver, *names) {
	t.Helper()
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	n := &names{answers: answers, asked: map[string]int{}}
	var served sync.WaitGroup
	served.Go(func() { n.serve(conn) })
	t.Cleanup(func() { _ = conn.Close(); served.Wait() })
	return &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "udp", conn.LocalAddr().String())
	}}, n
}

// become has a name lead to these addresses from now on.
func (n *names) become(name string, addresses []string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.answers[name] = [][]string{addresses}
}

func (n *names) serve(conn net.PacketConn) {
	buf := make([]byte, 1500)
	for {
		size, from, err := conn.ReadFrom(buf)
		if err != nil {
			return
		}
		var m dnsmessage.Message
		if m.Unpack(buf[:size]) != nil || len(m.Questions) != 1 {
			continue
		}
		reply := n.answer(m)
		if out, err := reply.Pack(); err == nil {
			_, _ = conn.WriteTo(out, from)
		}
	}
}

func (n *names) answer(m dnsmessage.Message) dnsmessage.Message {
	q := m.Questions[0]
	reply := dnsmessage.Message{Header: dnsmessage.Header{ID: m.ID, Response: true}, Questions: m.Questions}
	name := strings.TrimSuffix(q.Name.String(), ".")
	n.mu.Lock()
	defer n.mu.Unlock()
	rounds, ok := n.answers[name]
	if !ok {
		reply.RCode = dnsmessage.RCodeNameError
		return reply
	}
	key := name + q.Type.String()
	for _, s := range rounds[min(n.asked[key], len(rounds)-1)] {
		ip := netip.MustParseAddr(s)
		h := dnsmessage.ResourceHeader{Name: q.Name, Type: q.Type, Class: q.Class, TTL: 1}
		switch {
		case q.Type == dnsmessage.TypeA && ip.Is4():
			reply.Answers = append(reply.Answers,
				dnsmessage.Resource{Header: h, Body: &dnsmessage.AResource{A: ip.As4()}})
		case q.Type == dnsmessage.TypeAAAA && ip.Is6():
			body := &dnsmessage.AAAAResource{AAAA: ip.As16()}
			reply.Answers = append(reply.Answers, dnsmessage.Resource{Header: h, Body: body})
		}
	}
	n.asked[key]++
	return reply
}

func TestTargets(t *testing.T) {
	resolver := startDNS(t, map[string][][]string{
		"public.test":   {{"93.184.216.34", "2606:2800:220:1::1"}},
		"private.test":  {{"10.1.2.3"}},
		"mixed.test":    {{"93.184.216.34", "10.1.2.3"}},
		"mixed6.test":   {{"93.184.216.34", "fd12::1"}},
		"loop.test":     {{"127.0.0.1"}},
		"link.test":     {{"169.254.1.1"}},
		"meta.test":     {{"169.254.169.254"}},
		"mapped.test":   {{"::ffff:10.0.0.1"}},
		"nat64.test":    {{"64:ff9b::7f00:1"}},
		"under_sc.test": {{"93.184.216.34"}},
	})
	ranges := prefixes("10.0.0.0/8", "::ffff:192.168.0.0/112", "fd00::/8", "169.254.0.0/16", "100.64.0.0/10")
	guards := map[string]*guard{
		"strict":   newGuard(false, nil, resolver),
		"insecure": newGuard(true, nil, resolver),
		"ranges":   newGuard(false, ranges, resolver),
		"named":    newGuard(false, prefixes("169.254.169.254/32", "127.0.0.0/8"), resolver),
	}
	// Each guard's verdict is ok, or the part of the refusal that says why. A guard that is not listed refuses as
	// strict does.
	const ok = "ok"
	type verdicts map[string]string
	all := func(v string) verdicts { return verdicts{"strict": v} }
	only := func(v string, allowed ...string) verdicts {
		m := verdicts{"strict": v}
		for _, a := range allowed {
			m[a] = ok
		}
		return m
	}
	const (
		loopback = "a loopback address"
		private  = "a private address"
		link     = "a link-local address"
		metadata = "cloud metadata"
		special  = "not for public use"
		number   = "four plain decimal numbers"
		badName  = "is not a valid host name"
		resolves = "resolves to an address"
	)
	for _, tc := range []struct {
		url  string
		want verdicts
	}{
		// The URL.
		{"https://public.test/hook?key=1", all(ok)},
		{"https://public.test:8443", all(ok)},
		{"HTTPS://PUBLIC.TEST/", all(ok)},
		{"https://public.test./", all(ok)},
		{"https://under_sc.test/", all(ok)},
		{"https://unknown.test/", all(ok)},
		{"http://public.test/", only("must use https, not http", "insecure")},
		{"HTTP://PUBLIC.TEST/", only("must use https, not http", "insecure")},
		{"ftp://public.test/", all(`must use https, not "ftp"`)},
		{"file:///etc/passwd", all("must use https")},
		{"", all("is missing")},
		{"hook", all("absolute URL")},
		{"/hook", all("absolute URL")},
		{"//public.test/hook", all("absolute URL")},
		{"https:public.test", all("absolute URL")},
		{"https://", all("has no host")},
		{"https:///hook", all("has no host")},
		{"https://:443/", all("has no host")},
		{"https://user@public.test/", all("user name")},
		{"https://user:pw@public.test/", all("user name")},
		{"https://public.test#@127.0.0.1/", all("fragment")},
		{"https://public.test/#", all("fragment")},
		{"https://public.test:0/", all("port")},
		{"https://public.test:65536/", all("port")},
		{"https://public.test:x/", all("not a URL")},
		{"https://public.test\\@127.0.0.1/", all("not a URL")},
		{"https://public test/", all("not a URL")},
		{"https://public.test/\r\nX: y", all("not a URL")},
		{"https://public.test/" + strings.Repeat("a", maxTargetLen), all("longer than")},
		// IPv4.
		{"https://93.184.216.34/", all(ok)},
		{"https://127.0.0.1/", only(loopback, "insecure", "named")},
		{"https://127.9.9.9:8443/", only(loopback, "insecure", "named")},
		{"https://10.0.0.1/", only(private, "insecure", "ranges")},
		{"https://172.16.0.1/", only(private, "insecure")},
		{"https://172.31.255.255/", only(private, "insecure")},
		{"https://172.32.0.1/", all(ok)},
		{"https://192.168.1.1/", only(private, "insecure", "ranges")},
		{"https://100.64.0.1/", only(special, "insecure", "ranges")},
		{"https://169.254.1.1/", only(link, "ranges")},
		{"https://169.254.169.254/", only(metadata, "named")},
		{"https://169.254.170.2/", all(metadata)},
		{"https://100.100.100.200/", all(metadata)},
		{"https://168.63.129.16/", all(metadata)},
		{"https://0.0.0.0/", all("unspecified")},
		{"https://0.1.2.3/", all(special)},
		{"https://224.0.0.1/", all("multicast")},
		{"https://255.255.255.255/", all(special)},
		{"https://198.18.0.1/", all(special)},
		{"https://192.0.2.1/", all(special)},
		// IPv6.
		{"https://[2606:2800:220:1::1]/", all(ok)},
		{"https://[::1]/", only(loopback, "insecure")},
		{"https://[0:0:0:0:0:0:0:1]:443/", only(loopback, "insecure")},
		{"https://[::]/", all("unspecified")},
		{"https://[fc00::1]/", only(private, "insecure")},
		{"https://[fd12::1]/", only(private, "insecure", "ranges")},
		{"https://[fe80::1]/", all(link)},
		{"https://[fe80::1%25eth0]/", all("zone")},
		{"https://[2606:2800:220:1::1%25eth0]/", all("zone")},
		{"https://[ff02::1]/", all("multicast")},
		{"https://[fd00:ec2::254]/", all(metadata)},
		{"https://[fd20:ce::254]/", all(metadata)},
		{"https://[::ffff:127.0.0.1]/", only(loopback, "insecure", "named")},
		{"https://[::ffff:7f00:1]/", only(loopback, "insecure", "named")},
		{"https://[::ffff:10.0.0.1]/", only(private, "insecure", "ranges")},
		{"https://[::ffff:169.254.169.254]/", only(metadata, "named")},
		{"https://[::ffff:93.184.216.34]/", all(ok)},
		{"https://[::127.0.0.1]/", all(special)},
		{"https://[64:ff9b::7f00:1]/", only(loopback, "insecure", "named")},
		{"https://[64:ff9b::169.254.169.254]/", only(metadata, "named")},
		{"https://[64:ff9b::93.184.216.34]/", all(ok)},
		{"https://[2001:db8::1]/", all(special)},
		{"https://[127.0.0.1]/", all("")},
		{"https://::1/", all("")},
		// IPv4 in the notations of inet_aton, which some resolvers read.
		{"https://2130706433/", all(number)},
		{"https://2852039166/", all(number)},
		{"https://0/", all(number)},
		{"https://0x7f000001/", all(number)},
		{"https://0X7F000001/", all(number)},
		{"https://017700000001/", all(number)},
		{"https://0177.0.0.1/", all(number)},
		{"https://0x7f.0.0.1/", all(number)},
		{"https://127.0.0.0x1/", all(number)},
		{"https://127.1/", all(number)},
		{"https://127.0.1/", all(number)},
		{"https://127.0.0.1./", all(number)},
		{"https://127.0.0.01/", all(number)},
		{"https://127.0.0.256/", all(number)},
		{"https://1.2.3.4.5/", all(number)},
		{"https://0x/", all(number)},
		{"https://example.1/", all(number)},
		{"https://8.8.8.8./", all(number)},
		// Digits and dots of other scripts.
		{"https://１２７.０.０.１/", all(number)},
		{"https://①②⑦.⓪.⓪.①/", all(number)},
		{"https://127。0。0。1/", all(number)},
		{"https://%EF%BC%91%EF%BC%92%EF%BC%97.0.0.1/", all(number)},
		{"https://%31%32%37.0.0.1/", all("not a URL")},
		// Names.
		{"https://localhost/", only("this machine", "insecure", "named")},
		{"https://localhost./", only("this machine", "insecure", "named")},
		{"https://LOCALHOST:8443/", only("this machine", "insecure", "named")},
		{"https://a.localhost/", only("this machine", "insecure", "named")},
		{"https://ｌｏｃａｌｈｏｓｔ/", only("this machine", "insecure", "named")},
		{"https://notlocalhost/", all(ok)},
		{"https://metadata/", all("metadata service")},
		{"https://metadata.google.internal/computeMetadata/v1/", all("metadata service")},
		{"https://METADATA.google.internal./", all("metadata service")},
		{"https://instance-data/", all("metadata service")},
		{"https://a..b/", all(badName)},
		{"https://.a/", all(badName)},
		{"https://./", all(badName)},
		{"https://a*b/", all(badName)},
		{"https://" + strings.Repeat("a", 64) + "/", all(badName)},
		{"https://private.test/", only(resolves, "insecure", "ranges")},
		{"https://mixed.test/", only(resolves, "insecure", "ranges")},
		{"https://mixed6.test/", only(resolves, "insecure", "ranges")},
		{"https://loop.test/", only(resolves, "insecure", "named")},
		{"https://link.test/", only(resolves, "ranges")},
		{"https://meta.test/", only(resolves, "named")},
		{"https://mapped.test/", only(resolves, "insecure", "ranges")},
		{"https://nat64.test/", only(resolves, "insecure", "named")},
	} {
		for name, g := range guards {
			want, listed := tc.want[name]
			if !listed {
				want = tc.want["strict"]
			}
			t.Run(name+" "+tc.url, func(t *testing.T) {
				err := g.checkTarget(t.Context(), tc.url)
				switch {
				case want == ok && err != nil:
					t.Errorf("refused: %v", err)
				case want != ok && err == nil:
					t.Error("allowed")
				case want != ok &&
					(!strings.HasPrefix(err.Error(), "webhook ") || !strings.Contains(err.Error(), want)):
					t.Errorf("refused with %q, want one about %q", err, want)
				}
			})
		}
	}
}

// TestNoIPv6AddressCarriesAProhibitedOne holds that for each way in which an RFC puts an IPv4 address into an IPv6 one.
// It leaves out ways that the address itself does not show. These are an operator's own prefixes for NAT64 (RFC 6052),
// 6rd (RFC 5969) and MAP (RFC 7597). Another is 6over4 (RFC 2529), whose second half may be any small number.
func TestNoIPv6AddressCarriesAProhibitedOne(t *testing.T) {
	const public = "2606:2800:220:1"
	// W, X, Y and Z are the bytes of the IPv4 address.
	for name, way := range map[string]struct {
		form string
		// whole is true if the whole range is refused, whatever address is in it.
		whole bool
	}{
		"IPv4-compatible (RFC 4291)":              {"::WX:YZ", true},
		"IPv4-mapped (RFC 4291)":                  {"::ffff:WX:YZ", false},
		"IPv4-translated (RFC 2765)":              {"::ffff:0:WX:YZ", true},
		"NAT64 (RFC 6052)":                        {"64:ff9b::WX:YZ", false},
		"local NAT64 of 96 bits (RFC 8215)":       {"64:ff9b:1::WX:YZ", true},
		"local NAT64 of 48 bits (RFC 8215)":       {"64:ff9b:1:WX:Y:Z00::", true},
		"6to4 (RFC 3056)":                         {"2002:WX:YZ::1", true},
		"the server of Teredo (RFC 4380)":         {"2001:0:WX:YZ::1", true},
		"ISATAP (RFC 5214)":                       {public + ":0:5efe:WX:YZ", false},
		"ISATAP of a public address (RFC 5214)":   {public + ":200:5efe:WX:YZ", false},
		"ISATAP within the own link (RFC 5214)":   {"fe80::5efe:WX:YZ", true},
		"ISATAP under a unique local prefix":      {"fd12::5efe:WX:YZ", true},
		"ISATAP under NAT64's local prefix":       {"64:ff9b:1::200:5efe:WX:YZ", true},
		"ISATAP under 6to4 of a public IPv4 site": {"2002:5db8:d822::5efe:WX:YZ", true},
	} {
		t.Run(name, func(t *testing.T) {
			strict := newGuard(false, nil, nil)
			lenient := newGuard(true, prefixes("::/0"), nil)
			for ip, prohibited := range map[string]bool{
				"127.0.0.1": true, "10.1.2.3": true, "192.168.1.1": true, "169.254.169.254": true,
				"100.100.100.200": true,
				"0.0.0.0":         true, "224.0.0.1": true, "93.184.216.34": false,
			} {
				b := netip.MustParseAddr(ip).As4()
				carrier := netip.MustParseAddr(strings.NewReplacer(
					"W", hex.EncodeToString(b[:1]), "X", hex.EncodeToString(b[1:2]),
					"Y", hex.EncodeToString(b[2:3]), "Z", hex.EncodeToString(b[3:]),
				).Replace(way.form))
				if err := strict.judge(carrier); (err != nil) != (prohibited || way.whole) {
					t.Errorf("%s in %s: %v", ip, carrier, err)
				}
				// What an operator allows for IPv6 opens no metadata address behind it.
				if err := lenient.judge(carrier); !way.whole && ip == "169.254.169.254" && err == nil {
					t.Errorf("%s in %s is allowed with ::/0", ip, carrier)
				}
			}
		})
	}
}

func TestTargetErrorsKeepSecrets(t *testing.T) {
	g := newGuard(false, nil, net.DefaultResolver)
	for _, u := range []string{
		"https://user:hunter2@public.test/", "https://user:hunter2@public.test:x/", "http://public.test/?key=hunter2",
		"https://127.0.0.1/?key=hunter2", "https://public.test/hunter2\x7f",
	} {
		if err := g.checkTarget(t.Context(), u); err == nil || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%q: got %v", u, err)
		}
	}
}

func TestDialJudgesEachAddress(t *testing.T) {
	g := newGuard(false, nil, net.DefaultResolver)
	for address, ok := range map[string]bool{
		"93.184.216.34:443": true, "127.0.0.1:443": false, "[::ffff:127.0.0.1]:443": false, "[::1]:443": false,
		"[fe80::1%eth0]:443": false, "[2606:2800:220:1::1]:443": true, "[64:ff9b::a00:1]:443": false, "nonsense": false,
	} {
		err := g.control(t.Context(), "tcp", address, nil)
		if ok != (err == nil) || err != nil && !errors.Is(err, errProhibited) {
			t.Errorf("%s: got %v", address, err)
		}
	}
}

// TestDNSRebindingIsRefusedByTheDial has names that nothing forbids when the subscription is created, and that lead to
// a forbidden address when a wake or a push is sent. None of them may be connected to.
func TestDNSRebindingIsRefusedByTheDial(t *testing.T) {
	open, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = open.Close() }()
	_, port, _ := net.SplitHostPort(open.Addr().String())
	const public = "93.184.216.34"
	event := fsm.Batch{ContentType: "application/json", JSON: true, Events: [][]byte{[]byte("1")}, To: "5", Tail: "5"}
	for name, c := range map[string]struct {
		before, then string // addresses
		insecure     bool
	}{
		"from public to this machine":      {public, "127.0.0.1", false},
		"from no name to this machine":     {"", "127.0.0.1", false},
		"to several of this machine":       {public, "127.0.0.2 127.0.0.1 ::1", false},
		"to this machine as IPv6":          {public, "::1", false},
		"to an IPv4-mapped address":        {public, "::ffff:127.0.0.1", false},
		"to NAT64 of this machine":         {public, "64:ff9b::7f00:1", false},
		"to no address":                    {public, "0.0.0.0", false},
		"to a private network":             {public, "10.0.0.1", false},
		"to the metadata of a cloud":       {public, "169.254.169.254", false},
		"from this machine to metadata":    {"127.0.0.1", "169.254.169.254", true},
		"from this machine to a link":      {"127.0.0.1", "169.254.1.1 fe80::1", true},
		"from this machine to mapped":      {"127.0.0.1", "::ffff:169.254.169.254", true},
		"from this machine to NAT64 of it": {"127.0.0.1", "64:ff9b::169.254.169.254", true},
	} {
		for _, mode := range fsm.Modes {
			t.Run(name+" by a "+string(mode), func(t *testing.T) {
				resolver, names := startNames(t, map[string][][]string{"rebind.test": {strings.Fields(c.before)}})
				f := start(t, newMemStore(), func(cfg *Config) {
					cfg.AllowInsecure, cfg.resolver, cfg.ReadBatch = c.insecure, resolver, reads(event)
				})
				hook := "https://rebind.test:" + port + "/"
				if err := f.CheckTarget(t.Context(), hook); err != nil {
					t.Fatalf("it was refused before: %v", err)
				}
				names.become("rebind.test", strings.Fields(c.then))
				sub := f.store.pushSub(hook, func(s *fsm.Subscription) { s.Mode, s.Signature = mode, "" })
				f.Deliver(f.store.event(sub, "/s/1", "0005"))
				f.store.untilCalls(t, "Fail", 1)
				f.stop()
				want := "the host leads to a prohibited address"
				if got := f.store.fails()[0].failure.Reason; got != want {
					t.Errorf("the attempt failed as %q, want %q", got, want)
				}
			})
		}
		t.Run(name+" by a request for consent", func(t *testing.T) {
			resolver, names := startNames(t, map[string][][]string{"rebind.test": {strings.Fields(c.before)}})
			f := start(t, newMemStore(), func(cfg *Config) {
				cfg.AllowInsecure, cfg.resolver = c.insecure, resolver
				cfg.Consent, cfg.Origin = fsm.ConsentRequire, ourOrigin
			})
			hook := "https://rebind.test:" + port + "/"
			if err := f.CheckTarget(t.Context(), hook); err != nil {
				t.Fatalf("it was refused before: %v", err)
			}
			names.become("rebind.test", strings.Fields(c.then))
			sub, err := f.AskConsent(t.Context(), f.store.addSubscription("s", hook))
			f.stop()
			if err != nil || sub.Consent.Reason != "the host leads to a prohibited address" {
				t.Errorf("it ended as %+v, %v", sub.Consent, err)
			}
		})
	}
	_ = open.(*net.TCPListener).SetDeadline(time.Now().Add(100 * time.Millisecond))
	if _, err := open.Accept(); err == nil {
		t.Error("a connection was made")
	}
}

// TestANameThatWasForbiddenIsRefusedWithoutADial holds the other way round: the name leads to a public address, if at
// all, only once the subscription has been refused.
func TestANameThatWasForbiddenIsRefusedWithoutADial(t *testing.T) {
	resolver, names := startNames(t, map[string][][]string{"rebind.test": {{"127.0.0.1"}}})
	g := newGuard(false, nil, resolver)
	if g.checkTarget(t.Context(), "https://rebind.test/") == nil {
		t.Error("it was allowed before")
	}
	names.become("rebind.test", []string{"93.184.216.34"})
	if err := g.checkTarget(t.Context(), "https://rebind.test/"); err != nil {
		t.Errorf("it is refused: %v", err)
	}
}

// sendOnce makes a request as an attempt does, and returns its error.
func (s *sender) sendOnce(req *http.Request) error {
	e, req := newExchange(req, func() {})
	e.begin(req.Context())
	defer e.end()
	resp, err := s.send(req.Context(), e, req)
	if err == nil {
		_ = resp.Body.Close()
	}
	return err
}

func TestProxies(t *testing.T) {
	var got []string
	proxy := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		got = append(got, r.URL.String())
	}))
	defer proxy.Close()
	at, _ := url.Parse(proxy.URL)
	resolver := startDNS(t, map[string][][]string{
		"public.test": {{"93.184.216.34"}}, "link.test": {{"169.254.1.1"}}, "direct.test": {{"169.254.1.1"}},
	})
	fromEnv := func(r *http.Request) (*url.URL, error) {
		if r.URL.Hostname() == "direct.test" {
			return nil, nil
		}
		return at, nil
	}
	send := func(use bool, hook string) error {
		s := newSender(Config{
			MaxInFlight: 2, MaxInFlightPerSubscription: 1, ConnectionAge: time.Minute,
			ProxyFromEnvironment: use, proxy: fromEnv,
		}, newGuard(true, nil, resolver))
		defer s.pool.close()
		req, _ := http.NewRequestWithContext(t.Context(), http.MethodPost, hook, nil)
		return s.sendOnce(req)
	}
	if err := send(true, "http://public.test/a"); err != nil {
		t.Errorf("a public target through the proxy: %v", err)
	}
	if err := send(true, "http://link.test/"); !errors.Is(err, errTarget) {
		t.Errorf("a prohibited target through the proxy: %v", err)
	}
	if err := send(true, "http://direct.test/"); !errors.Is(err, errProhibited) {
		t.Errorf("a prohibited target past the proxy: %v", err)
	}
	if err := send(false, "http://link.test/"); !errors.Is(err, errProhibited) {
		t.Errorf("a target without the setting went through the proxy: %v", err)
	}
	long := "http://public.test/a?t=" + strings.Repeat("x", maxTargetLen) // by the token in it
	if err := send(true, long); err != nil {
		t.Errorf("a public target with a long authorization through the proxy: %v", err)
	}
	if !slices.Equal(got, []string{"http://public.test/a", long}) {
		t.Errorf("the proxy saw %v", got)
	}
}

func TestProxyAddressIsTheOperatorsBusiness(t *testing.T) {
	tunnels := 0
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodConnect && r.Host == "public.test:443" {
			tunnels++
		}
		w.WriteHeader(http.StatusBadGateway)
	}))
	defer proxy.Close()
	at, _ := url.Parse(proxy.URL)
	cfg := Config{
		MaxInFlight: 2, MaxInFlightPerSubscription: 1, ConnectionAge: time.Minute,
		ProxyFromEnvironment: true, proxy: http.ProxyURL(at),
	}
	s := newSender(cfg,
		newGuard(false, nil, startDNS(t, map[string][][]string{"public.test": {{"93.184.216.34"}}})))
	defer s.pool.close()
	req, _ := http.NewRequestWithContext(t.Context(), http.MethodPost, "https://public.test/", nil)
	err := s.sendOnce(req)
	if err == nil || tunnels != 1 {
		t.Errorf("the proxy, on a loopback address, was asked for %d tunnels: %v", tunnels, err)
	}
}
