package e2e

import (
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"reveille/test/harness"
)

// TestTheStatusOfTwoReplicas asks the program for the whole: two replicas, of which one stops, an endpoint that fails,
// and a Redis that goes away.
func TestTheStatusOfTwoReplicas(t *testing.T) {
	t.Parallel()
	e := with(t, ownRedis(t), nil)
	second := harness.StartReveille(t, e.settings(nil))
	root := "/" + name(t)
	f := e.subscriber(root + "/well/*")
	bad := harness.NewWorker(t)
	bad.Answer(func(w http.ResponseWriter, _ *http.Request, _ harness.Wake) {
		w.Header().Set("Location", "https://new.example/hook?key=s3cret")
		w.WriteHeader(http.StatusPermanentRedirect)
	})
	e.gateway.Subscribe(root+"/moved/*", "moved", bad)
	f.wakesOnAppend(root+"/well/a", e.gateway.Create(root+"/well/a"))
	e.gateway.Create(root + "/moved/a")
	shows := func(of *harness.Reveille, when string, patterns ...string) {
		t.Helper()
		harness.Eventually(t, soon, when, func() error {
			status, out, stderr := of.Ask("", "status")
			if status != 0 || stderr != "" {
				return fmt.Errorf("exit status %d: %s", status, stderr)
			}
			for _, p := range patterns {
				if !regexp.MustCompile("(?m)" + p).MatchString(out) {
					return fmt.Errorf("it does not show %q:\n%s", p, out)
				}
			}
			if strings.Contains(out, "s3cret") {
				return fmt.Errorf("it shows a secret:\n%s", out)
			}
			return nil
		})
	}
	for _, replica := range []*harness.Reveille{e.rev, second} {
		shows(replica, "both replicas are shown",
			`^redis +up since 2`, `^stream server +up since 2.*; dialect standard, watched by (sse|long-poll)$`,
			`^partitions +\d+$`, `^subscriptions +2: 1 failing, 1 ok$`, `^oldest waiting +2.* ago$`,
			`REPLICA +STATE +ALIVE SINCE +PARTITIONS(\n\S+ +alive +2\S+, \S+ ago +[1-9]\d*){2}\n`,
			`^moved +failing +\S+ ago +status 308 to https://new\.example \(redirects are not followed\)$`)
	}
	last := regexp.MustCompile(`(?m)^last attempt +failed \(status 308 to https://new\.example .*class redirect\), 2`)
	harness.Eventually(t, soon, "the last attempt is shown", func() error {
		if _, out, _ := e.rev.Ask("", "subscriptions", "moved"); !last.MatchString(out) {
			return errors.New(out)
		}
		return nil
	})
	if err := second.Stop(); err != nil {
		t.Fatal(err)
	}
	shows(e.rev, "the one that has left is not shown", `(?s)PARTITIONS\n\S+ +alive [^\n]*\n\n`, `^partitions +\d+$`)
	e.redis.Kill()
	shows(e.rev, "it says that Redis is away", `^redis +away since 2.*: `,
		`^subscriptions +2: .* \(not all consumers are counted: more may be failing\)`,
		`^partitions +\d+; the other replicas are not known while redis is away$`)
}
