package workers

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"reveille/test/harness"
)

// verifyStandard stands on the page of signatures, as here.
func verifyStandard(header http.Header, rawBody []byte, secret string, now time.Time) bool {
	id, stamp := header.Get("Webhook-Id"), header.Get("Webhook-Timestamp")
	seconds, err := strconv.ParseInt(stamp, 10, 64)
	if err != nil || now.Sub(time.Unix(seconds, 0)).Abs() > 5*time.Minute {
		return false
	}
	key, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(secret, "whsec_"))
	if err != nil {
		return false
	}
	mac := hmac.New(sha256.New, key)
	mac.Write([]byte(id + "." + stamp + "."))
	mac.Write(rawBody)
	want := []byte("v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil)))
	for _, part := range strings.Fields(header.Get("Webhook-Signature")) {
		if hmac.Equal([]byte(part), want) {
			return true
		}
	}
	return false
}

// The functions that the page of signatures gives for Standard Webhooks take what is pushed for rightly signed, while a
// secret is rotated too, and nothing else.
func TestThePageOfSignaturesVerifiesStandardWebhooksByHand(t *testing.T) {
	server, redis := harness.StartRefServer(t, harness.RefOptions{}), harness.StartRedis(t)
	reveille := harness.StartReveille(t, map[string]string{
		"REVEILLE_UPSTREAM_URL": server.StreamRoot, "REVEILLE_REDIS_URL": redis.URL,
	})
	api, operator := harness.NewClient(t, reveille.URL), harness.NewClient(t, reveille.Operator)
	receiver := harness.NewReceiver(t)
	var first, second struct {
		Secret string `json:"webhook_secret"`
	}
	api.PutSubscription("/a", "a",
		`{"mode":"push","signature":"standard-webhooks","webhook":"`+receiver.URL+`"}`).Decode(t, &first)
	operator.Do(http.MethodPost, "/api/v1/subscriptions/a/rotate-secret", "").Decode(t, &second)
	api.Create("/a")
	api.Append("/a", `{"n":1}`)
	receiver.Await("/a", 1)
	push := receiver.Pushes()[0]

	unsigned := push.Header.Clone()
	unsigned.Del("Webhook-Signature")
	old := push.Header.Clone()
	old.Set("Webhook-Timestamp", strconv.FormatInt(time.Now().Add(-6*time.Minute).Unix(), 10))
	for _, c := range []struct {
		name   string
		header http.Header
		body   []byte
		secret string
		right  bool
	}{
		{"what was pushed, by the new secret", push.Header, push.Body, second.Secret, true},
		{"what was pushed, by the previous one", push.Header, push.Body, first.Secret, true},
		{"another body", push.Header, append(bytes.Clone(push.Body), ' '), second.Secret, false},
		{"another secret", push.Header, push.Body, "whsec_" + strings.Repeat("A", 43) + "=", false},
		{"no signature", unsigned, push.Body, second.Secret, false},
		{"another time", old, push.Body, second.Secret, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := verifyStandard(c.header, c.body, c.secret, time.Now()); got != c.right {
				t.Errorf("Go: %v", got)
			}
			headers := map[string]string{}
			for name := range c.header {
				headers[strings.ToLower(name)] = c.header.Get(name)
			}
			in, err := json.Marshal(map[string]any{"headers": headers, "body": string(c.body), "secret": c.secret})
			if err != nil {
				t.Fatal(err)
			}
			for language, ask := range map[string][]string{
				"javascript": {"node", "--input-type=module", "-e", `
import { readFileSync } from "node:fs";
const { headers, body, secret } = JSON.parse(readFileSync(0, "utf8"));
console.log(verifyStandard(headers, Buffer.from(body), secret));`},
				"python": {"python3", "-c", `
import json, sys
q = json.load(sys.stdin)
print(str(verify_standard(q["headers"], q["body"].encode(), q["secret"])).lower())`},
			} {
				args := append([]string{}, ask...)
				args[len(args)-1] = byHand(t, language) + ask[len(ask)-1]
				cmd := exec.CommandContext(t.Context(), args[0], args[1:]...)
				cmd.Stdin = bytes.NewReader(in)
				out, err := cmd.Output()
				if got := strings.TrimSpace(string(out)); err != nil || got != strconv.FormatBool(c.right) {
					t.Errorf("%s: %q, %v", language, got, err)
				}
			}
		})
	}
}

// byHand is the last block of a language on the page of signatures: the others use a library.
func byHand(t *testing.T, language string) (code string) {
	t.Helper()
	for _, b := range blocks(t) {
		if b.page == signatures && b.language == language {
			code = b.content
		}
	}
	if !strings.Contains(code, "def verify_standard") && !strings.Contains(code, "function verifyStandard") {
		t.Fatalf("the page has no function in %s", language)
	}
	return code
}
