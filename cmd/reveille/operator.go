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
	"net/url"
	"strings"
	"time"
)

const (
	// askTimeout bounds one request to the operator port, which itself takes no longer for a page.
	askTimeout = 30 * time.Second
	// maxOperatorAnswer bounds an answer in bytes.
	maxOperatorAnswer = 64 << 20
)

// errNoAnswer is the cause of an error about a replica that cannot be reached.
var errNoAnswer = errors.New("no answer")

// operatorURL returns the root of an operator port: of a URL, or of an address to listen on, as REVEILLE_ADMIN_ADDR is.
func operatorURL(addr string) (string, error) {
	if strings.Contains(addr, "://") {
		u, err := url.Parse(addr)
		if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
			return "", usageError{fmt.Sprintf("--addr %q: expected host:port or http://host:port", redact(addr))}
		}
		return strings.TrimRight(addr, "/"), nil
	}
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return "", usageError{fmt.Sprintf("--addr %q: expected host:port or http://host:port", redact(addr))}
	}
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		host = "localhost"
	}
	return "http://" + net.JoinHostPort(host, port), nil
}

// ask makes a request of the operator's API and reads the answer. With --output json it is printed as it is:
// printed is then true.
func (c *cli) ask(ctx context.Context, method, path string, body, answer any) (printed bool, err error) {
	root, err := operatorURL(c.addr)
	if err != nil {
		return false, err
	}
	ctx, cancel := context.WithTimeout(ctx, cmp.Or(c.patience, askTimeout))
	defer cancel()
	var sent io.Reader
	if body != nil {
		text, err := json.Marshal(body)
		if err != nil {
			return false, err
		}
		sent = bytes.NewReader(text)
	}
	req, err := http.NewRequestWithContext(ctx, method, root+path, sent)
	if err != nil {
		return false, usageError{"what was given makes no URL: " + withoutURL(err).Error()}
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("User-Agent", "reveille/"+programVersion())
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return false, fmt.Errorf(
			"%w from %s (--addr or REVEILLE_ADMIN_ADDR): %w", errNoAnswer, redact(root), withoutURL(err),
		)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(io.LimitReader(res.Body, maxOperatorAnswer))
	if err != nil {
		return false, fmt.Errorf("the response of %s ended early: %w", redact(root), err)
	}
	if res.StatusCode < 200 || res.StatusCode > 299 {
		return false, refusalOf(res.StatusCode, text)
	}
	if c.output == outputJSON {
		_ = json.Unmarshal(text, answer)
		_, err := c.out.Write(text)
		return true, err
	}
	if err := json.Unmarshal(text, answer); err != nil {
		return false, fmt.Errorf("the response of %s is not from Reveille: %w", redact(root), err)
	}
	return false, nil
}

// withoutURL takes the URL out of an error: it may hold a password.
func withoutURL(err error) error {
	var cause *url.Error
	if errors.As(err, &cause) {
		return cause.Err
	}
	return err
}

// refusalOf returns the error of an answer that is no success.
func refusalOf(status int, text []byte) error {
	var body struct {
		Error struct{ Code, Message string }
	}
	if json.Unmarshal(text, &body) != nil || body.Error.Code == "" {
		return fmt.Errorf("the response has status %d and is not from Reveille: is this the operator port?", status)
	}
	return fmt.Errorf("%s: %s", printable(body.Error.Code), printable(body.Error.Message))
}

// list returns the query of a list.
func (c *cli) list(path string, filters ...[2]string) string {
	q := url.Values{"limit": {fmt.Sprint(c.limit)}}
	if c.cursor != "" {
		q.Set("cursor", c.cursor)
	}
	for _, f := range filters {
		if f[1] != "" {
			q.Set(f[0], f[1])
		}
	}
	return path + "?" + q.Encode()
}
