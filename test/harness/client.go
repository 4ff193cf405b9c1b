package harness

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"
)

// requestTimeout bounds every request of a Client. It is longer than any server here waits before it answers.
const requestTimeout = 3 * time.Minute

// Client speaks to a stream server, to a Reveille as a gateway in front of one, and to Reveille's own API. Its methods
// fail the test if there is no answer at all. Methods with the name of what they do, such as Append, also fail it if
// the answer is no success.
type Client struct {
	// Root is the stream root: the stream /a is at {Root}/a.
	Root string

	t    testing.TB
	http *http.Client
}

// NewClient returns a client for a stream root. It closes its connections at the end of the test.
func NewClient(t testing.TB, root string) *Client {
	// Node closes a connection after 5 s without use, and a POST at that moment fails.
	transport := &http.Transport{DisableCompression: true, MaxIdleConnsPerHost: 100, IdleConnTimeout: 2 * time.Second}
	t.Cleanup(transport.CloseIdleConnections)
	return &Client{
		Root: root, t: t,
		http: &http.Client{
			Transport: transport, Timeout: requestTimeout,
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
	}
}

// Response is an answer, read to its end.
type Response struct {
	Status int
	Header http.Header
	Body   string
}

// Decode reads the body as JSON.
func (r Response) Decode(t testing.TB, into any) {
	t.Helper()
	if err := json.Unmarshal([]byte(r.Body), into); err != nil {
		t.Errorf("the answer (%d) is not the JSON expected: %v: %q", r.Status, err, r.Body)
	}
}

// Try makes a request and returns the answer or the error. path is as it stands in the URL, with the query. Names and
// values take turns in header.
func (c *Client) Try(ctx context.Context, method, path, body string, header ...string) (Response, error) {
	var reader io.Reader
	if body != "" {
		canaries.learn(body)
		reader = strings.NewReader(body)
	}
	req, err := http.NewRequestWithContext(ctx, method, c.Root+path, reader)
	if err != nil {
		return Response{}, err
	}
	if method == http.MethodPatch {
		req.Header.Set(jsonType[0], jsonType[1])
	}
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	return c.do(req)
}

func (c *Client) do(req *http.Request) (Response, error) {
	res, err := c.http.Do(req)
	if err != nil {
		return Response{}, err
	}
	defer func() { _ = res.Body.Close() }()
	body, err := io.ReadAll(res.Body)
	return Response{Status: res.StatusCode, Header: res.Header, Body: string(body)}, err
}

// Do is Try, but fails the test if there is no answer.
func (c *Client) Do(method, path, body string, header ...string) Response {
	c.t.Helper()
	res, err := c.Try(context.Background(), method, path, body, header...)
	if err != nil {
		c.t.Fatalf("%s %s: %v", method, path, err)
	}
	return res
}

// must is Do, but fails the test unless the status is one of want. A Reveille answers 502 or 503 while the server
// behind it pauses; it is then asked again, for Wait at most.
func (c *Client) must(method, path, body string, want []int, header ...string) Response {
	c.t.Helper()
	var res Response
	_ = Poll(Wait, func() error {
		if res = c.Do(method, path, body, header...); awayForNow(res) {
			return errors.New("away")
		}
		return nil
	})
	for _, s := range want {
		if res.Status == s {
			return res
		}
	}
	c.t.Fatalf("%s %s: status %d, want %v: %s", method, path, res.Status, want, res.Body)
	return Response{}
}

func awayForNow(r Response) bool {
	return r.Status == http.StatusBadGateway || r.Status == http.StatusServiceUnavailable
}

var jsonType = []string{"Content-Type", "application/json"}

// Create creates a stream of JSON messages, with more headers if given, and returns its tail.
func (c *Client) Create(path string, header ...string) string {
	c.t.Helper()
	return c.must(http.MethodPut, path, "", []int{200, 201},
		append(jsonType[:2:2], header...)...).Header.Get("Stream-Next-Offset")
}

// leastEvent is the least length, in bytes, of an event that no Reveille may show: shorter ones stand elsewhere by
// chance.
const leastEvent = 32

// Append appends one JSON message and returns the new tail.
func (c *Client) Append(path, message string, header ...string) string {
	c.t.Helper()
	if len(message) >= leastEvent {
		canaries.add(anEvent, message)
	}
	return c.must(http.MethodPost, path, message, []int{200, 204},
		append(jsonType[:2:2], header...)...).Header.Get("Stream-Next-Offset")
}

// CloseStream closes a stream for good.
func (c *Client) CloseStream(path string) {
	c.t.Helper()
	c.must(http.MethodPost, path, "", []int{200, 204}, "Stream-Closed", "true")
}

// DeleteStream deletes a stream.
func (c *Client) DeleteStream(path string) {
	c.t.Helper()
	c.must(http.MethodDelete, path, "", []int{200, 204})
}

// Tail returns a stream's tail, and "" if there is no such stream.
func (c *Client) Tail(path string) string {
	c.t.Helper()
	res := c.must(http.MethodHead, path, "", []int{200, 404, 410})
	if res.Status != http.StatusOK {
		return ""
	}
	return res.Header.Get("Stream-Next-Offset")
}

// Read returns the messages of a stream from an offset to its tail, and the offset read to.
func (c *Client) Read(path, offset string) (messages []json.RawMessage, next string) {
	c.t.Helper()
	for {
		res := c.must(http.MethodGet, path+"?offset="+offset, "", []int{200, 204})
		if res.Status == http.StatusOK {
			var some []json.RawMessage
			res.Decode(c.t, &some)
			messages = append(messages, some...)
		}
		next = res.Header.Get("Stream-Next-Offset")
		if res.Header.Get("Stream-Up-To-Date") == "true" || next == offset {
			return messages, next
		}
		offset = next
	}
}

// Subscription is a subscription as the API shows it (webhook spec, Subscription HTTP API).
type Subscription struct {
	ID          string `json:"subscription_id"`
	Pattern     string `json:"pattern"`
	Webhook     string `json:"webhook"`
	Secret      string `json:"webhook_secret,omitempty"`
	Description string `json:"description,omitempty"`
	Backfill    *struct {
		Done  int `json:"done"`
		Total int `json:"total"`
	} `json:"backfill,omitempty"`
}

// PutSubscription asks for a subscription and returns the answer as it is.
func (c *Client) PutSubscription(pattern, id, body string) Response {
	c.t.Helper()
	return c.Do(http.MethodPut, pattern+"?subscription="+id, body, jsonType...)
}

// Subscribe creates a subscription for a worker and tells the worker its secret.
func (c *Client) Subscribe(pattern, id string, w *Worker) Subscription {
	c.t.Helper()
	sub := c.SubscribeURL(pattern, id, w.URL)
	w.Trust(id, sub.Secret)
	return sub
}

// SubscribeURL creates a subscription for any webhook.
func (c *Client) SubscribeURL(pattern, id, webhook string) Subscription {
	c.t.Helper()
	body, err := json.Marshal(map[string]string{"webhook": webhook})
	if err != nil {
		c.t.Fatal(err)
	}
	var res Response
	_ = Poll(Wait, func() error {
		again := awayForNow(res)
		if res = c.PutSubscription(pattern, id, string(body)); again && res.Status == http.StatusOK {
			// The subscription was created, but the answer with its secret was lost.
			c.DeleteSubscription(pattern, id)
			res = c.PutSubscription(pattern, id, string(body))
		}
		if awayForNow(res) {
			return errors.New("away")
		}
		return nil
	})
	if res.Status != http.StatusCreated {
		c.t.Fatalf("PUT %s?subscription=%s: status %d, want 201: %s", pattern, id, res.Status, res.Body)
	}
	var sub Subscription
	res.Decode(c.t, &sub)
	return sub
}

// Subscription returns a subscription, or false if there is none with that ID.
func (c *Client) Subscription(id string) (Subscription, bool) {
	c.t.Helper()
	res := c.must(http.MethodGet, "/**?subscription="+id, "", []int{200, 404})
	var sub Subscription
	if res.Status != http.StatusOK {
		return sub, false
	}
	res.Decode(c.t, &sub)
	return sub, true
}

// DeleteSubscription deletes a subscription.
func (c *Client) DeleteSubscription(pattern, id string) {
	c.t.Helper()
	c.must(http.MethodDelete, pattern+"?subscription="+id, "", []int{204})
}

// Callback is the body of a callback (webhook spec, Callback API).
type Callback struct {
	Epoch       int64          `json:"epoch"`
	WakeID      string         `json:"wake_id,omitempty"`
	Acks        []StreamOffset `json:"acks,omitempty"`
	Subscribe   []string       `json:"subscribe,omitempty"`
	Unsubscribe []string       `json:"unsubscribe,omitempty"`
	Done        bool           `json:"done,omitempty"`
}

// CallbackAnswer is the answer to a callback, a success or not.
type CallbackAnswer struct {
	Response `json:"-"`
	OK       bool           `json:"ok"`
	Token    string         `json:"token"`
	Streams  []StreamOffset `json:"streams"`
	Error    struct {
		Code    string `json:"code"`
		Message string `json:"message"`
	} `json:"error"`
}

// Callback sends a callback for a wake, with the wake's own token.
func (c *Client) Callback(w Wake, cb Callback) CallbackAnswer {
	c.t.Helper()
	body, err := json.Marshal(cb)
	if err != nil {
		c.t.Fatal(err)
	}
	return c.RawCallback(w.Callback, w.Token, string(body))
}

// RawCallback sends any body to a callback URL. Without a token there is no Authorization header. It may be called from
// any goroutine. If there is no answer, it marks the test as failed and returns a zero CallbackAnswer.
func (c *Client) RawCallback(url, token, body string) CallbackAnswer {
	c.t.Helper()
	var a CallbackAnswer
	req, err := http.NewRequestWithContext(context.Background(), http.MethodPost, url, bytes.NewReader([]byte(body)))
	if err != nil {
		c.t.Errorf("callback: %v", err)
		return a
	}
	req.Header.Set("Content-Type", "application/json")
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	res, err := c.do(req)
	if err != nil {
		c.t.Errorf("callback: %v", err)
		return a
	}
	res.Decode(c.t, &a)
	a.Response = res
	return a
}

// Claim is a callback that claims the wake, acks the offsets given, and says done or not.
func (w Wake) Claim(done bool, acks ...StreamOffset) Callback {
	return Callback{Epoch: w.Epoch, WakeID: w.WakeID, Acks: acks, Done: done}
}

// String names a wake in messages.
func (w Wake) String() string { return fmt.Sprintf("%s epoch %d %s", w.ConsumerID, w.Epoch, w.WakeID) }
