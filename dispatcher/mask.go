package dispatcher

import (
	"strings"

	"reveille/fsm"
)

// leastSecret is the length in bytes from which on a value that a subscription sends along is masked: a shorter one
// stands in texts by chance.
const leastSecret = 8

// mask takes the secrets of a subscription out of what its endpoint has answered: some endpoints repeat a request that
// they do not understand. The text may end within one.
func mask(sub fsm.Subscription, text string) string {
	const masked = "[masked]"
	secrets := []string{sub.Secret, sub.Previous.Secret, sub.Authorization.Secret}
	for _, value := range sub.Headers {
		secrets = append(secrets, value)
	}
	for _, secret := range secrets {
		if _, credentials, ok := strings.Cut(secret, " "); ok { // behind the scheme, such as Bearer
			text = maskOne(text, credentials, masked)
		}
		text = maskOne(text, secret, masked)
	}
	return text
}

func maskOne(text, secret, masked string) string {
	if len(secret) < leastSecret {
		return text
	}
	text = strings.ReplaceAll(text, secret, masked)
	for n := min(len(secret)-1, len(text)); n >= leastSecret; n-- {
		if strings.HasSuffix(text, secret[:n]) {
			return text[:len(text)-n] + masked
		}
	}
	return text
}
