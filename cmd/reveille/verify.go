package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"reveille/dispatcher/format"
)

const (
	defaultTolerance = format.SignatureTolerance
	// maxVerified bounds the body of a signature check, in bytes.
	maxVerified = 64 << 20
)

// verify checks a signature, and says which check fails.
func (c *cli) verify(_ context.Context, _ []string) error {
	c.secret = cmp.Or(c.secret, webhookSecret())
	switch {
	case c.secret == "":
		return usageError{"verify: --secret or " + webhookSecretName +
			" is needed: the webhook_secret that the subscription was created with"}
	case c.signature == "":
		return usageError{"verify: --signature is needed: the Webhook-Signature header of the request"}
	case c.tolerance < 0:
		return usageError{"verify: --tolerance cannot be negative"}
	}
	header := c.signatureHeader()
	ofOJS := c.timestamp != "" && strings.HasPrefix(header, format.OJSPrefix)
	standard := !ofOJS && (c.id != "" || c.timestamp != "" || strings.HasPrefix(header, format.StandardPrefix))
	if standard && (c.id == "" || c.timestamp == "") {
		return usageError{"verify: a signature of Standard Webhooks needs --id and --timestamp, " +
			"the webhook-id and webhook-timestamp headers"}
	}
	body, err := io.ReadAll(io.LimitReader(c.in, maxVerified+1))
	if err != nil {
		return fmt.Errorf("read the body from standard input: %w", err)
	}
	if len(body) > maxVerified {
		return errors.New("the body on standard input is longer than 64 MiB")
	}
	examine := func(secret string, body []byte) format.Examination {
		switch {
		case ofOJS:
			return format.ExamineOJS(secret, c.timestamp, header, body, c.now(), c.tolerance)
		case standard:
			return format.ExamineStandard(secret, c.id, c.timestamp, header, body, c.now(), c.tolerance)
		}
		return format.Examine(secret, header, body, c.now(), c.tolerance)
	}
	e := examine(c.secret, body)
	if e.Form != nil {
		return c.conclude(e, [][]string{{"form", "wrong: " + e.Form.Error()}})
	}
	at := "right: "
	if !e.InTime {
		at = "wrong: "
	}
	checks := [][]string{
		{"form", "right"},
		{"time", at + fmt.Sprintf("signed %s by this machine's clock, %s may be between",
			relative(c.now().Add(-e.Age), c.now()), c.tolerance)},
	}
	if e.Right {
		return c.conclude(e, append(checks, []string{"HMAC", "right"}))
	}
	head := e.Time
	key := fmt.Sprintf("with the %d bytes of the secret as the key, its \"whsec_\" included", len(c.secret))
	if standard {
		head = c.id + "." + e.Time
		key = "with the bytes as the key that the secret's base64 stands for, after its \"whsec_\""
	}
	checks = append(checks,
		[]string{"HMAC", "wrong: it is not of this body with this secret"},
		[]string{"", fmt.Sprintf("expected: the HMAC-SHA256 of %q and the %d bytes of the body as they came,",
			head+".", len(body))},
		[]string{"", key})
	if hint := c.hint(examine, body); hint != "" {
		checks = append(checks, []string{"", "hint: " + hint})
	}
	return c.conclude(e, checks)
}

func (c *cli) conclude(e format.Examination, checks [][]string) error {
	if err := c.fields(checks); err != nil {
		return err
	}
	if !e.OK() {
		_, _ = fmt.Fprintln(c.out, "The signature is not valid.")
		return errRefused
	}
	_, err := fmt.Fprintln(c.out, "The signature is valid.")
	return err
}

// signatureHeader returns the header's value without the name, which the user may have copied, too.
func (c *cli) signatureHeader() string {
	header := strings.TrimSpace(c.signature)
	name, value, ok := strings.Cut(header, ":")
	for _, known := range []string{format.SignatureHeader, format.NewSignatureHeader, format.OJSSignatureHeader} {
		if ok && strings.EqualFold(name, known) {
			return strings.TrimSpace(value)
		}
	}
	return header
}

// hint tries the usual mistakes.
func (c *cli) hint(examine func(secret string, body []byte) format.Examination, body []byte) string {
	fits := func(secret string, body []byte) bool { return examine(secret, body).Right }
	shorter := bytes.TrimRight(body, "\r\n")
	switch {
	case fits(c.secret, shorter):
		return "it is that of the body without the line break at its end (echo adds one, printf %s does not)"
	case fits(c.secret, append(bytes.Clone(body), '\n')):
		return "it is that of the body with a line break at its end"
	case fits(strings.TrimSpace(c.secret), body):
		return "it is that of the secret without the space around it"
	case fits("whsec_"+c.secret, body):
		return "it is that of the secret with whsec_ before it"
	}
	return ""
}
