package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"reveille/dispatcher/format"
	"reveille/fsm"
	"reveille/test/harness"
)

const (
	listenSecret = "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD"
	otherSecret  = "whsec_D2FVsBQIhrscChlQIMV+b5sSYspob7oD"
)

// listenOutput is what a listener has printed.
type listenOutput struct {
	mu   sync.Mutex
	text bytes.Buffer
	more chan struct{}
}

func (w *listenOutput) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	defer func() {
		select {
		case w.more <- struct{}{}:
		default:
		}
	}()
	return w.text.Write(p)
}

func (w *listenOutput) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.text.String()
}

// listening is a reveille listen that runs in this process.
type listening struct {
	t   *testing.T
	url string
	out *listenOutput
	at  time.Time
	end func() error
}

// startListen starts one, which the test ends if it does not do so itself. Its clock stands still.
func startListen(t *testing.T, args ...string) *listening {
	t.Helper()
	l := &listening{t: t, out: &listenOutput{more: make(chan struct{}, 1)}, at: time.Unix(1_790_000_000, 0)}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	c := &cli{out: l.out, now: func() time.Time { return l.at }}
	go func() { ended <- c.run(ctx, append([]string{"listen", "--port", "0"}, args...)) }()
	l.end = sync.OnceValue(func() error {
		cancel()
		return <-ended
	})
	t.Cleanup(func() {
		if err := l.end(); err != nil {
			t.Errorf("it ended with %v", err)
		}
	})
	found := regexp.MustCompile(`http://127\.0\.0\.1:\d+`)
	for found.FindString(l.out.String()) == "" {
		select {
		case <-l.out.more:
		case err := <-ended:
			ended <- err
			t.Fatalf("it does not listen: %v", err)
		}
	}
	l.url = found.FindString(l.out.String())
	return l
}

// post sends a request and returns how it was answered, and what was printed of it.
func (l *listening) post(header http.Header, body string) (status int, answer, printed string) {
	l.t.Helper()
	before := len(l.out.String())
	req, err := http.NewRequestWithContext(l.t.Context(), http.MethodPost, l.url+"/hook", strings.NewReader(body))
	if err != nil {
		l.t.Fatal(err)
	}
	req.Header = header.Clone()
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		l.t.Fatal(err)
	}
	defer res.Body.Close()
	text, _ := io.ReadAll(res.Body)
	return res.StatusCode, string(text), l.out.String()[before:]
}

// request is what Reveille sends of a delivery.
func (l *listening) request(sub fsm.Subscription, events ...string) (http.Header, string) {
	l.t.Helper()
	sub.Mode, sub.ID = fsm.ModePush, "s"
	if len(events) > 1 {
		sub.Batch = len(events)
	}
	f, err := format.Of(sub.WithDefaults())
	if err != nil {
		l.t.Fatal(err)
	}
	b := fsm.Batch{ContentType: "application/json", JSON: true, From: "1002"}
	for _, e := range events {
		b.Events = append(b.Events, []byte(e))
	}
	wake := fsm.Delivery{Consumer: "s:%2Fa", Generation: "g", Primary: "/a", Born: 7, WokeAt: l.at}
	h, body, err := f.Request(format.Content{
		Delivery: wake, ID: b.DeliveryID(wake), Batch: b, PublicURL: "https://r.example.com",
		Secret: listenSecret, Previous: sub.Previous.Secret, At: l.at,
	})
	if err != nil {
		l.t.Fatal(err)
	}
	return h, string(body)
}

// TestListenShowsPushes holds what is shown of each format and scheme: the events, and that they are verified.
func TestListenShowsPushes(t *testing.T) {
	l := startListen(t, "--secret", otherSecret, "--secret", listenSecret)
	for _, c := range []struct {
		name   string
		sub    fsm.Subscription
		events []string
		head   string // behind the time, a regular expression
		lines  []string
	}{
		{
			"json",
			fsm.Subscription{},
			[]string{`{"n": 1}`},
			`push, 1 event of /a, json, evt_\w+_0: verified \(standard-webhooks\)`,
			[]string{`{"n":1}`},
		},
		{
			"an array is one event",
			fsm.Subscription{},
			[]string{`[1,2]`},
			`push, 1 event of /a, json, evt_\w+_0: verified \(standard-webhooks\)`,
			[]string{`[1,2]`},
		},
		{
			"by hmac",
			fsm.Subscription{Signature: fsm.SignatureHMAC},
			[]string{`1`},
			`push, 1 event of /a, json, evt_\w+_0: verified \(hmac\)`,
			[]string{`1`},
		},
		{
			"during a rotation",
			fsm.Subscription{Signature: fsm.SignatureHMAC, Previous: fsm.PreviousSecret{Secret: "whsec_before"}},
			[]string{`1`},
			`push, 1 event of /a, json, evt_\w+_0: verified \(hmac\)`,
			[]string{`1`},
		},
		{
			"a batch",
			fsm.Subscription{},
			[]string{`1`, `"two"`, `{"three":3}`},
			`push, 3 events of /a, json, evt_\w+_0-2: verified \(standard-webhooks\)`,
			[]string{`1`, `"two"`, `{"three":3}`},
		},
		{
			"a long batch",
			fsm.Subscription{},
			slices.Repeat([]string{"1"}, 14),
			`push, 14 events of /a, json, evt_\w+_0-13: verified \(standard-webhooks\)`,
			append(slices.Repeat([]string{"1"}, 10), "and 4 events more"),
		},
		{
			"cloudevents",
			fsm.Subscription{Format: fsm.FormatCloudEvents},
			[]string{`{"n":1}`},
			`push, 1 event of /a, cloudevents, evt_\w+_0: verified \(standard-webhooks\)`,
			[]string{`{"specversion"`},
		},
		{
			"cloudevents-binary",
			fsm.Subscription{Format: fsm.FormatCloudEventsBinary},
			[]string{`{"n":1}`},
			`push, 1 event of /a, cloudevents-binary, evt_\w+_0: verified \(standard-webhooks\)`,
			[]string{`{"n":1}`},
		},
		{
			"cloudevents-batch",
			fsm.Subscription{Format: fsm.FormatCloudEventsBatch},
			[]string{`{"n":1}`},
			`push, 1 event of /a, cloudevents-batch, evt_\w+_0: verified \(standard-webhooks\)`,
			[]string{`{"specversion"`},
		},
		{
			"ojs",
			fsm.Subscription{Format: fsm.FormatOJS},
			[]string{`{"n":1}`},
			`push, 1 event of /a, ojs, evt_\w+_0: verified \(standard-webhooks, X-OJS-Signature\)`,
			[]string{`{"specversion"`},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			header, body := l.request(c.sub, c.events...)
			status, _, printed := l.post(header, body)
			lines := strings.Split(strings.TrimSuffix(printed, "\n"), "\n")
			if status != http.StatusNoContent || len(lines) != len(c.lines)+2 {
				t.Fatalf("status %d, printed\n%s", status, printed)
			}
			if !regexp.MustCompile(`^\d\d:\d\d:\d\d  ` + c.head + `$`).MatchString(lines[0]) {
				t.Errorf("it begins with %q, want %s", lines[0], c.head)
			}
			for n, want := range c.lines {
				if got := strings.TrimSpace(lines[n+1]); !strings.HasPrefix(got, want) {
					t.Errorf("line %d is %q, want %q", n+2, got, want)
				}
			}
			if last := strings.TrimSpace(lines[len(lines)-1]); last != "answered 204 No Content" {
				t.Errorf("it ends with %q", last)
			}
		})
	}
	if text := l.out.String(); strings.Contains(text, listenSecret) || strings.Contains(text, "\x1b") {
		t.Errorf("there is a secret or a colour in %s", text)
	}
}

// TestListenSaysWhyARequestIsNotVerified holds the reasons, and that such a request is not taken.
func TestListenSaysWhyARequestIsNotVerified(t *testing.T) {
	l := startListen(t, "--secret", listenSecret)
	for name, c := range map[string]struct {
		change func(h http.Header, body *string)
		sub    fsm.Subscription
		says   string
	}{
		"another body": {
			change: func(_ http.Header, body *string) { *body += " " },
			says:   "the standard-webhooks signature is wrong: the secret is that of another subscription, or",
		},
		"another body, by hmac": {
			sub:    fsm.Subscription{Signature: fsm.SignatureHMAC},
			change: func(_ http.Header, body *string) { *body += " " },
			says:   "the hmac signature is wrong: the secret is that of another",
		},
		"no signature": {
			change: func(h http.Header, _ *string) { h.Del("Webhook-Signature"); h.Del("Webhook-Timestamp") },
			says:   "there is no signature",
		},
		"another form": {
			change: func(h http.Header, _ *string) { h.Set("Webhook-Signature", "v2,x") },
			says:   "the standard-webhooks signature is wrong: webhook-signature is not v1,<base64>",
		},
		"a part of it is wrong": {
			sub:    fsm.Subscription{Format: fsm.FormatOJS},
			change: func(h http.Header, _ *string) { h.Set("X-OJS-Signature", "sha256="+strings.Repeat("0", 64)) },
			says:   "the X-OJS-Signature signature is wrong: the secret is that of another",
		},
		"an old one": {
			change: func(http.Header, *string) { l.at = l.at.Add(time.Hour) },
			says:   "it was made 1h0m0s ago, by the clock of this machine",
		},
	} {
		header, body := l.request(c.sub, `{"n":1}`)
		c.change(header, &body)
		status, answer, printed := l.post(header, body)
		if status != http.StatusUnauthorized || !strings.Contains(printed, ": NOT VERIFIED\n") ||
			!strings.Contains(printed, c.says) || !strings.Contains(answer, c.says) {
			t.Errorf("%s: status %d, %s, printed\n%s\nwant %q", name, status, answer, printed, c.says)
		}
	}
}

// TestListenWithoutASecretSaysThatNothingIsVerified holds that it does not look as if it were.
func TestListenWithoutASecretSaysThatNothingIsVerified(t *testing.T) {
	t.Setenv(listenSecretName, "")
	l := startListen(t)
	if text := l.out.String(); !strings.Contains(text, "Signatures are not verified: that needs --secret") {
		t.Errorf("it begins with %s", text)
	}
	header, body := l.request(fsm.Subscription{}, `{"n":1}`)
	if status, _, printed := l.post(header, body); status != 204 || !strings.Contains(printed, ": not verified\n") {
		t.Errorf("status %d, printed %s", status, printed)
	}
}

func TestListenTakesItsSecretsFromTheEnvironment(t *testing.T) {
	t.Setenv(listenSecretName, otherSecret+","+listenSecret)
	l := startListen(t)
	header, body := l.request(fsm.Subscription{}, `{"n":1}`)
	if status, _, printed := l.post(header, body); status != 204 || !strings.Contains(printed, ": verified (") {
		t.Errorf("status %d, printed %s", status, printed)
	}
}

// TestListenWritesALineOfJSONForEachRequest holds what a program reads of --output json.
func TestListenWritesALineOfJSONForEachRequest(t *testing.T) {
	l := startListen(t, "--output", "json", "--secret", listenSecret)
	first := strings.TrimSpace(l.out.String())
	if first != `{"listens_on":"`+l.url+`"}` {
		t.Errorf("it begins with %s", first)
	}
	header, body := l.request(fsm.Subscription{}, `{"n": "<é>"}`)
	header.Set("Reveille-Replay", "true")
	_, _, printed := l.post(header, body)
	want := fmt.Sprintf(`{"at":%q,"kind":"push","verified":true,"signatures":["standard-webhooks"],"id":%q,`+
		`"format":"json","replay":true,"streams":[{"path":"/a","count":1,"events":[{"n":"<é>"}]}],"status":204}`+"\n",
		l.at.UTC().Format(time.RFC3339), header.Get("Webhook-Id"))
	if printed != want {
		t.Errorf("it printed\n%s\nwant\n%s", printed, want)
	}
	long := `"` + strings.Repeat("x", 2000) + `"`
	for _, body := range []string{"\xff\x00", long} {
		header, body := l.request(fsm.Subscription{}, body)
		_, _, printed = l.post(header, body)
		var got struct{ Streams []struct{ Events []string } } // what is no JSON, or long, is a text
		if err := json.Unmarshal([]byte(printed), &got); err != nil || strings.Count(printed, "\n") != 1 ||
			len(printed) > 2*maxText {
			t.Errorf("%v, printed %s", err, printed)
		}
	}
}

// TestListenAnswersWhatIsNoDelivery holds that requests of web pages, above all, have no effect.
func TestListenAnswersWhatIsNoDelivery(t *testing.T) {
	l := startListen(t)
	begins := l.out.String()
	for _, origin := range []string{"https://page.example", "null"} {
		if status, _, printed := l.post(http.Header{"Origin": {origin}}, "{}"); status != 403 || printed != "" {
			t.Errorf("of a page: status %d, printed %s", status, printed)
		}
	}
	res, err := http.Get(l.url)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if res.StatusCode != 405 || res.Header.Get("Allow") != "POST" || l.out.String() != begins {
		t.Errorf("GET: status %d, printed %s", res.StatusCode, l.out)
	}
	if status, _, printed := l.post(nil, `{"a":1}`); status != 400 ||
		!strings.Contains(printed, "  other: not verified\n") {
		t.Errorf("neither a wake nor a push: status %d, printed %s", status, printed)
	}
	if status, _, _ := l.post(nil, strings.Repeat("x", maxReceived+1)); status != http.StatusRequestEntityTooLarge {
		t.Errorf("a large body: status %d", status)
	}
	// What a receiver is sent cannot steer the terminal.
	_, _, printed := l.post(http.Header{"Reveille-Stream": {"/a"}, "Webhook-Id": {"evt"}}, "\x1b[2J\n\r")
	if strings.ContainsAny(strings.ReplaceAll(printed, "\n", ""), "\x1b\r") {
		t.Errorf("it printed %q", printed)
	}
}

// wakeServer is a Reveille and its stream server, as a worker sees them. Its streams have an answer for each offset.
type wakeServer struct {
	*httptest.Server
	callbacks []string
	refuse    string // what it answers to callbacks instead
	path      string // of the first stream; "/a/1" if it is empty
	reads     []string
}

func (s *wakeServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if strings.HasPrefix(r.URL.Path, "/callback/") {
		body, _ := io.ReadAll(r.Body)
		s.callbacks = append(s.callbacks, r.Header.Get("Authorization")+" "+string(body))
		if s.refuse != "" {
			w.WriteHeader(http.StatusConflict)
			_, _ = io.WriteString(w, s.refuse)
			return
		}
		_, _ = fmt.Fprintf(w, `{"ok":true,"token":"token-%d","streams":[{"path":%q,"offset":"3"},`+
			`{"path":"/b%%20c","offset":"-1"}]}`, len(s.callbacks)+1, cmp.Or(s.path, "/a/1"))
		return
	}
	s.reads = append(s.reads, r.RequestURI)
	at := map[string][]string{ // offset, content type, body, whether that is all
		"/a/1?offset=3":       {"4", "application/json", `[{"n":1},{"n":2}]`, ""},
		"/a/1?offset=4":       {"5", "application/json", `["three"]`, "true"},
		"/b%20c?offset=-1":    {"9", "text/plain", "some text", ""},
		"/b%20c?offset=9":     {"9", "text/plain", "", ""},
		"/up/a/1?offset=3":    {"3", "application/json", `[]`, "true"},
		"/up/b%20c?offset=-1": {"0", "application/json", ``, "true"},
	}[r.RequestURI]
	if at == nil {
		w.WriteHeader(http.StatusNotFound)
		return
	}
	w.Header().Set("Stream-Next-Offset", at[0])
	w.Header().Set("Content-Type", at[1])
	w.Header().Set("Stream-Up-To-Date", at[3])
	_, _ = io.WriteString(w, at[2])
}

func (s *wakeServer) wake() string {
	return `{"consumer_id":"agents:%2Fa%2F1","epoch":7,"wake_id":"w_1","primary_stream":"/a/1",` +
		`"streams":[{"path":"/a/1","offset":"3"}],"triggered_by":["/a/1"],` +
		`"callback":"` + s.URL + `/callback/agents:%2Fa%2F1","token":"token-1"}`
}

// signedWake is a wake as it is sent by a scheme.
func (l *listening) signedWake(s *wakeServer) http.Header {
	return http.Header{"Webhook-Signature": {format.Sign(listenSecret, l.at, []byte(s.wake()))}}
}

// TestListenWorksOnAWake holds that it does what a worker does, and shows it.
func TestListenWorksOnAWake(t *testing.T) {
	server := &wakeServer{}
	server.Server = httptest.NewServer(server)
	defer server.Close()
	l := startListen(t, "--secret", listenSecret)
	status, _, printed := l.post(l.signedWake(server), server.wake())
	want := l.at.Format("15:04:05") + `  wake, subscription agents, epoch 7, w_1: verified (hmac)
          3 events of /a/1, up to offset 5
            {"n":1}
            {"n":2}
            "three"
          1 event of /b%20c, up to offset 9
            some text
          claimed, read, acked and done
          answered 204 No Content
`
	if status != http.StatusNoContent || printed != want {
		t.Errorf("status %d, printed\n%s\nwant\n%s", status, printed, want)
	}
	if want := []string{
		`Bearer token-1 {"epoch":7,"wake_id":"w_1"}`,
		`Bearer token-2 {"acks":[{"path":"/a/1","offset":"5"},{"path":"/b%20c","offset":"9"}],"done":true,"epoch":7}`,
	}; !slices.Equal(server.callbacks, want) {
		t.Errorf("it called back with %q, want %q", server.callbacks, want)
	}

	up := startListen(t, "--upstream", server.URL+"/up/")
	if status, _, printed = up.post(nil, server.wake()); status != 204 ||
		!strings.Contains(printed, "0 events of /a/1") {
		t.Errorf("from the stream server: status %d, printed %s", status, printed)
	}
}

// TestListenSaysWhatIsWrongWithAWake holds that a failure names what to do, and that Reveille is told of it.
func TestListenSaysWhatIsWrongWithAWake(t *testing.T) {
	server := &wakeServer{}
	server.Server = httptest.NewServer(server)
	defer server.Close()
	gone := fmt.Sprintf("http://127.0.0.1:%d", harness.FreePort(t))
	for name, c := range map[string]struct {
		refuse, body, says string
		args               []string
	}{
		"refused": {
			`{"ok":false,"error":{"code":"STALE_EPOCH","message":"the epoch is 8"}}`, server.wake(),
			"cannot claim it: STALE_EPOCH: the epoch is 8", nil,
		},
		"of something else": {`<html>`, server.wake(), "status 409 from its callback URL, not from Reveille", nil},
		"no answer": {
			"", strings.ReplaceAll(server.wake(), server.URL, gone),
			"no answer from its callback URL, " + gone + ", which begins with REVEILLE_PUBLIC_URL: ", nil,
		},
		"another URL": {"", strings.Replace(server.wake(), "/callback/", "/other/", 1), "is none of Reveille", nil},
		"no gateway": {
			"", server.wake(), "cannot read /a/1: status 404 from " + server.URL + ": is it deleted? Without",
			[]string{"--upstream", server.URL + "/none"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			server.refuse = c.refuse
			l := startListen(t, c.args...)
			status, _, printed := l.post(nil, c.body)
			if status != http.StatusInternalServerError || !strings.Contains(printed, c.says) ||
				strings.Contains(printed, "token-1") {
				t.Errorf("status %d, printed %s, want %q", status, printed, c.says)
			}
		})
	}
	// A path that is none must not lead to another host.
	server.refuse, server.path = "", "@"+strings.TrimPrefix(gone, "http://")
	if status, _, printed := startListen(t).post(nil, server.wake()); status != 500 ||
		!strings.Contains(printed, "its path makes no URL") {
		t.Errorf("a path that makes another host: status %d, printed %s", status, printed)
	}
	// Without the right signature nothing is done.
	server.callbacks = nil
	l := startListen(t, "--secret", otherSecret)
	if status, _, _ := l.post(l.signedWake(server), server.wake()); status != 401 || server.callbacks != nil {
		t.Errorf("of a wake that another has signed: status %d, callbacks %q", status, server.callbacks)
	}
}

// TestListenPassesRequestsOn holds that the worker behind it gets each request as it came, and answers it.
func TestListenPassesRequestsOn(t *testing.T) {
	var got []string
	worker := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		got = append(got, r.RequestURI+" "+r.Header.Get("Webhook-Signature")+" "+string(body))
		w.Header().Set("Retry-After", "7")
		w.WriteHeader(http.StatusTooManyRequests)
		_, _ = io.WriteString(w, `{"slow":"down"}`)
	}))
	server := &wakeServer{}
	server.Server = httptest.NewServer(server)
	defer server.Close()
	l := startListen(t, "--secret", listenSecret, "--forward", worker.URL+"/hook?key=hunter2")
	header := l.signedWake(server)
	status, answer, printed := l.post(header, server.wake())
	if status != http.StatusTooManyRequests || answer != `{"slow":"down"}` ||
		!strings.Contains(printed, "answered 429 Too Many Requests by "+worker.URL) ||
		strings.Contains(printed, "hunter2") {
		t.Errorf("status %d, %s, printed %s", status, answer, printed)
	}
	want := "/hook?key=hunter2 " + header.Get("Webhook-Signature") + " " + server.wake()
	if !slices.Equal(got, []string{want}) {
		t.Errorf("the worker got %q, want %q", got, want)
	}
	if server.callbacks != nil || server.reads != nil {
		t.Error("it has worked on the wake itself")
	}
	header.Set("Webhook-Signature", format.Sign(otherSecret, l.at, []byte(server.wake())))
	if status, _, _ = l.post(header, server.wake()); status != http.StatusUnauthorized || len(got) != 1 {
		t.Errorf("what another has signed: status %d, the worker got %q", status, got[1:])
	}
	header = l.signedWake(server)
	worker.Close()
	if status, answer, printed = l.post(header, server.wake()); status != http.StatusBadGateway ||
		!strings.Contains(printed, "no answer from "+worker.URL) || strings.Contains(printed+answer, "hunter2") {
		t.Errorf("without a worker: status %d, %s, printed %s", status, answer, printed)
	}
}

// TestListenTakesRequestsOfOtherMachinesOnlyWithASecret holds that no stranger has it make requests.
func TestListenTakesRequestsOfOtherMachinesOnlyWithASecret(t *testing.T) {
	for _, host := range []string{"0.0.0.0", "::", "192.0.2.1", "host.example"} {
		status, out, errs := call("", "listen", "--host", host, "--port", "0")
		if status != 2 || out != "" || !strings.Contains(errs, "give --secret or "+listenSecretName) {
			t.Errorf("%s: status %d, %q, %q", host, status, out, errs)
		}
	}
}

func TestListenSaysWhatToDoIfThePortIsInUse(t *testing.T) {
	socket, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = socket.Close() }()
	_, port, _ := net.SplitHostPort(socket.Addr().String())
	status, out, errs := call("", "listen", "--port", port)
	if status != 1 || out != "" ||
		errs != "reveille: 127.0.0.1:"+port+" is in use: choose another with --port, or 0 for one that is free\n" {
		t.Errorf("status %d, %q, %q", status, out, errs)
	}
}

// TestListenEndsWithWhatItWorksOn holds that a Ctrl-C does not wait for ever for a request.
func TestListenEndsWithWhatItWorksOn(t *testing.T) {
	came, over := make(chan struct{}), make(chan struct{})
	worker := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		close(came)
		<-over
	}))
	defer worker.Close()
	defer close(over)
	l := startListen(t, "--forward", worker.URL)
	cut := make(chan error, 1)
	go func() {
		req, _ := http.NewRequestWithContext(context.WithoutCancel(t.Context()), http.MethodPost, l.url, nil)
		res, err := http.DefaultClient.Do(req)
		if err == nil {
			err = errors.Join(res.Body.Close(), fmt.Errorf("status %d", res.StatusCode))
		}
		cut <- err
	}()
	<-came
	if err := l.end(); err != nil {
		t.Errorf("it ended with %v", err)
	}
	if err := <-cut; err == nil {
		t.Error("the request was answered")
	}
}
