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
	// askTimeout bounds one request to the operator port, which takes no longer for a page.
	askTimeout = 30 * time.Second
	// maxOperatorAnswer bounds an answer in bytes.
	maxOperatorAnswer = 64 << 20
	// maxRedirects bounds how often a request is sent on, by what is in front of the port.
	maxRedirects = 10
)

// errNoAnswer is the cause of an error if a replica cannot be reached.
var errNoAnswer = errors.New("no answer")

// A port is one of the two of a running Reveille, as a command reaches it.
type port struct {
	name, flag, variable string
	addr                 string
	// token comes with each request, if there is one.
	token string
}

func (c *cli) operatorPort() port {
	return port{"operator port", "--addr", prefix + "_OPERATOR_ADDR", c.addr, operatorToken()}
}

// url returns the root of the port: its address is a URL, or an address to listen on, as REVEILLE_OPERATOR_ADDR is.
func (p port) url() (string, error) {
	wrong := usageError{fmt.Sprintf("%s %q: expected host:port or http://host:port", p.flag, redact(p.addr))}
	if strings.Contains(p.addr, "://") {
		u, err := url.Parse(p.addr)
		if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
			return "", wrong
		}
		return strings.TrimRight(p.addr, "/"), nil
	}
	host, port, err := net.SplitHostPort(p.addr)
	if err != nil {
		return "", wrong
	}
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		host = "localhost"
	}
	return "http://" + net.JoinHostPort(host, port), nil
}

// ask sends a request to the operator's API and reads the answer. With --output json, it prints the answer as it is,
// and printed is true.
func (c *cli) ask(ctx context.Context, method, path string, body, answer any) (printed bool, err error) {
	return c.askAt(ctx, c.operatorPort(), method, path, body, answer)
}

// askAt is ask of either port. answer is nil if the body of a success is not read. A body that is a json.RawMessage is
// sent as it is.
func (c *cli) askAt(
	ctx context.Context, p port, method, path string, body, answer any,
) (printed bool, err error) {
	root, err := p.url()
	if err != nil {
		return false, err
	}
	ctx, cancel := context.WithTimeout(ctx, cmp.Or(c.patience, askTimeout))
	defer cancel()
	var sent io.Reader
	if body != nil {
		text, written := body.(json.RawMessage)
		if !written {
			if text, err = json.Marshal(body); err != nil {
				return false, err
			}
		}
		sent = bytes.NewReader(text)
	}
	req, err := http.NewRequestWithContext(ctx, method, root+path, sent)
	if err != nil {
		return false, usageError{"what was given makes no URL: " + withoutURL(err).Error()}
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("User-Agent", "reveille/"+programVersion())
	if p.token != "" && req.URL.User == nil {
		req.Header.Set("Authorization", "Bearer "+p.token)
	}
	client := http.Client{CheckRedirect: func(next *http.Request, via []*http.Request) error {
		elsewhere := next.URL.Scheme != req.URL.Scheme || next.URL.Host != req.URL.Host
		switch {
		case len(via) >= maxRedirects:
			return fmt.Errorf("it redirects more than %d times", maxRedirects)
		case elsewhere && req.Header.Get("Authorization") != "": // whoever that is gets no token
			return fmt.Errorf("it redirects to %s://%s: give that address", next.URL.Scheme, next.URL.Host)
		}
		return nil
	}}
	res, err := client.Do(req)
	if err != nil {
		return false, fmt.Errorf(
			"%w from %s (%s or %s): %w", errNoAnswer, redact(root), p.flag, p.variable, withoutURL(err),
		)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(io.LimitReader(res.Body, maxOperatorAnswer))
	if err != nil {
		return false, fmt.Errorf("the response of %s ended early: %w", redact(root), err)
	}
	if res.StatusCode < 200 || res.StatusCode > 299 {
		return false, refusalOf(p, res.StatusCode, text)
	}
	if answer == nil {
		return false, nil
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

// withoutURL removes the URL from an error, because it may hold a password.
func withoutURL(err error) error {
	var cause *url.Error
	if errors.As(err, &cause) {
		return cause.Err
	}
	return err
}

// refusalOf returns the error of an answer that is no success.
func refusalOf(p port, status int, text []byte) error {
	var body struct {
		Error struct{ Code, Message string }
	}
	if json.Unmarshal(text, &body) != nil || body.Error.Code == "" {
		return foreign{status, p.name}
	}
	return refusal{printable(body.Error.Code), printable(body.Error.Message)}
}

// foreign is a response that something else has answered, at the address of a port of this name.
type foreign struct {
	status int
	port   string
}

func (f foreign) Error() string {
	return fmt.Sprintf("the response has status %d and is not from Reveille: is this the %s?", f.status, f.port)
}

// refusal is an error that Reveille has answered.
type refusal struct{ code, message string }

func (r refusal) Error() string { return r.code + ": " + r.message }

// list returns the query of a list.
func (c *cli) list(path string, filters ...[2]string) string {
	q := url.Values{"limit": {fmt.Sprint(c.limit)}}
	for _, f := range append(filters, [2]string{"cursor", c.cursor}) {
		if f[1] != "" {
			q.Set(f[0], f[1])
		}
	}
	return path + "?" + q.Encode()
}
