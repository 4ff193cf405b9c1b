package httpapi

import (
	"net/http"
	"net/url"
	"strings"

	"go.uber.org/zap"

	"reveille/fsm"
)

// mangled refuses a callback whose path lost its "%2F" on the way. As a stream's path it would go to the stream server, whose 404
// tells nobody what is wrong. The token says whether it is a callback: it must be for the consumer that the path would name.
func (s *Service) mangled(r *http.Request, path string) error {
	id, ok := strings.CutPrefix(path, callbackPrefix)
	if !ok || r.Method != http.MethodPost {
		return nil
	}
	scheme, text, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return nil
	}
	token, err := s.cfg.Tokens.Parse(strings.TrimSpace(text))
	if err != nil {
		return nil
	}
	came, badPath := url.PathUnescape(id)
	meant, badID := url.PathUnescape(token.Consumer)
	if badPath != nil || badID != nil || came != meant {
		return nil
	}
	if times, log := s.decoded.Happened(s.cfg.Clock()); log {
		s.log.Warn("callbacks come with a decoded path; something on the way from the workers turns %2F into a slash",
			zap.String("consumer", token.Consumer), zap.Int("times", times))
	}
	return refuse(fsm.CodeNotFound, "the path of this callback was decoded on the way: %%2F in it must not turn into a slash, see to the proxies in between")
}
