package main

import (
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"go.uber.org/zap"

	"reveille/fsm"
	"reveille/httpapi"
)

// origin parses the URL of a server. It may have a path and nothing after it.
func origin(text string) (*url.URL, error) {
	expected := errors.New("a URL such as http://streams:4437 or https://streams.example.com/v1/stream")
	u, err := url.Parse(text)
	switch {
	case err != nil, u.Host == "", u.Scheme != "http" && u.Scheme != "https":
		return nil, expected
	case u.User != nil:
		return nil, errors.New("a URL without user and password " +
			"(for the stream server, REVEILLE_UPSTREAM_HEADERS can carry an Authorization)")
	case u.RawQuery != "" || u.Fragment != "" || u.ForceQuery:
		return nil, errors.New("a URL without a query or fragment")
	}
	return u, nil
}

// webOrigin parses a web origin and returns it as browsers send it.
func webOrigin(text string) (string, error) {
	if text == httpapi.AnyOrigin {
		return text, nil
	}
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil || u.Path != "" ||
		u.RawQuery != "" || u.ForceQuery || u.Fragment != "" {
		return "", errors.New("* or web origins such as https://app.example.com, without a path, separated by commas")
	}
	host := strings.ToLower(u.Host)
	if port := u.Port(); u.Scheme == "http" && port == "80" || u.Scheme == "https" && port == "443" {
		host = strings.TrimSuffix(host, ":"+port)
	}
	return u.Scheme + "://" + host, nil
}

// identity returns the part of a URL that tells one server from another.
func identity(u *url.URL) string {
	return u.Scheme + "://" + strings.ToLower(u.Host) +
		strings.ReplaceAll(strings.TrimRight(u.EscapedPath(), "/"), "'", "%27")
}

// redact returns a URL without user and password, and without the query, which may hold a key.
func redact(text string) string {
	if at := strings.LastIndex(text, "@"); at >= 0 {
		text = "…" + text[at:]
	}
	if before, _, found := strings.Cut(text, "?"); found {
		text = before + "?…"
	}
	return text
}

// outboxFits says whether nothing else lies at the path of the outbox, above or below it.
func (s *settings) outboxFits() bool {
	if strings.HasSuffix(s.Outbox, "/") || strings.Contains(s.Outbox, "%") {
		return false
	}
	return s.Outbox == "" || !slices.ContainsFunc(
		[]string{s.EventsStream, s.RegistryStream, "/webhooks", "/callback", "/consent", "/ojs"},
		func(other string) bool {
			return other != "" && (fsm.Within(s.Outbox, other) || fsm.Within(other, s.Outbox))
		})
}

// minOperatorToken is the least length of a token, in bytes. It can be guessed at the rate at which the port answers.
const minOperatorToken = 20

// checkOperatorTokens checks what the operator port asks for.
func (s *settings) checkOperatorTokens() error {
	for _, t := range []struct{ name, value string }{{"_ADMIN_TOKEN", s.AdminToken}, {"_READ_TOKEN", s.ReadToken}} {
		wrong := func(expected string) error {
			return &settingError{name: prefix + t.name, value: t.value, expected: expected, secret: true}
		}
		switch {
		case t.value == "":
		case len(t.value) < minOperatorToken || strings.ContainsFunc(t.value, func(r rune) bool {
			return r <= ' ' || r > '~'
		}):
			return wrong(fmt.Sprintf("a random text of at least %d letters, digits and signs, without spaces and "+
				"line breaks", minOperatorToken))
		case s.AdminToken == "":
			return wrong("none without REVEILLE_ADMIN_TOKEN")
		case t.name == "_READ_TOKEN" && s.AdminToken == s.ReadToken:
			return wrong("another token than REVEILLE_ADMIN_TOKEN")
		}
	}
	return nil
}

// warnOfOrigin says that no other machine knows the name by which endpoints are asked for consent.
func warnOfOrigin(s settings, log *zap.Logger) {
	if s.Consent != fsm.ConsentOff && !strings.Contains(s.Origin, ".") {
		log.Warn("endpoints are asked for consent by a name that only your network can know; "+
			"set REVEILLE_ORIGIN to your DNS name", zap.String("origin", s.Origin))
	}
}

// checkConsent checks the settings about consent. The host is that of REVEILLE_PUBLIC_URL.
func (s *settings) checkConsent(host string) error {
	switch s.Consent {
	case fsm.ConsentOff, fsm.ConsentAsk, fsm.ConsentRequire:
	default:
		return &settingError{name: prefix + "_CONSENT", value: string(s.Consent), expected: "off, ask or require"}
	}
	s.Origin = strings.ToLower(strings.TrimSuffix(s.Origin, "."))
	if s.Origin == "" {
		s.Origin = strings.ToLower(strings.TrimSuffix(host, "."))
		if s.Consent == fsm.ConsentOff {
			return nil
		}
	}
	if !fsm.IsDNSName(s.Origin) {
		return &settingError{
			name: prefix + "_ORIGIN", value: s.Origin, expected: "a DNS name such as reveille.example.com",
		}
	}
	return nil
}

// maxWebhook bounds REVEILLE_NOTICE_WEBHOOK, in bytes, as clients' webhooks are bounded.
const maxWebhook = 2048

// checkNotices checks the settings about notices. The webhook's URL is never shown: it may hold a secret. The program
// that runs checks whether it may be called, as for all webhooks.
func (s *settings) checkNotices() error {
	wrong := func(expected string) error {
		return &settingError{
			name: prefix + "_NOTICE_WEBHOOK", value: s.NoticeWebhook, expected: expected, secret: true,
		}
	}
	if s.NoticeWebhook == "" {
		return nil
	}
	u, err := url.Parse(s.NoticeWebhook)
	switch {
	case err != nil, u.Host == "", u.Scheme != "http" && u.Scheme != "https", u.User != nil,
		strings.Contains(s.NoticeWebhook, "#"),
		len(s.NoticeWebhook) > maxWebhook:
		return wrong("a URL such as https://alerts.example.com/hook, without user, password and fragment")
	case s.EventsStream == "":
		return wrong("none without REVEILLE_EVENTS_STREAM, the stream that notices come from")
	}
	return nil
}
