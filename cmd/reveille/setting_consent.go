package main

import (
	"strings"

	"go.uber.org/zap"

	"reveille/fsm"
)

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
