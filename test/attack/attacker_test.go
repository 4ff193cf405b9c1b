package attack

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"reveille/test/harness"
)

// attacker does the harm from a process of its own. Where times are measured it has the lowest priority: it has a
// machine of its own where this is real, so what it takes of this one must not count as what Reveille lets it take from
// others.
type attacker struct {
	t       *testing.T
	process *harness.Process
	control string
}

// order is what an attacker is to do.
type order struct {
	// Behaviours has an endpoint opened for each, see behaviours.
	Behaviours []string
	// Host gets Clients connections of slow clients, which take turns in Kinds.
	Host    string
	Clients int
	Kinds   []slowClient
}

// account is what an attacker has come to.
type account struct {
	Endpoints []endpoint
	// Begun counts the connections that slow clients have made.
	Begun int64
}

// endpoint is one that does not behave: how many connections are open, and how many requests have come.
type endpoint struct {
	URL  string
	Open int
	Seen int64
}

// attackerEnv has the order of a process that is to be an attacker.
const attackerEnv = "REVEILLE_TEST_ATTACKER"

// patience is for what the attacker has to do: it has the lowest priority, and other tests run beside it.
const patience = 10 * time.Minute

func startAttacker(t *testing.T, o order) *attacker {
	t.Helper()
	text, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	out := &harness.Output{}
	cmd := exec.Command(os.Args[0])
	if full {
		cmd = exec.Command("nice", "-n", "19", os.Args[0])
	}
	cmd.Env = append(os.Environ(), attackerEnv+"="+string(text))
	p, err := harness.Start("an attacker", out, cmd)
	if err != nil {
		t.Fatal(err)
	}
	a := &attacker{t: t, process: p}
	t.Cleanup(a.end)
	harness.Eventually(t, patience, "the attacker is there", func() error {
		a.control, err = harness.AnnouncedURL(out.String())
		if err != nil {
			err = fmt.Errorf("%w; it said: %s", err, out.String())
		}
		return err
	})
	return a
}

// account asks how far it has come.
func (a *attacker) account() (got account) {
	a.t.Helper()
	res, err := harness.NewClient(a.t, a.control).Try(a.t.Context(), http.MethodGet, "/", "")
	if err == nil {
		err = json.Unmarshal([]byte(res.Body), &got)
	}
	if err != nil {
		a.t.Fatalf("the attacker does not answer: %v\n%s", err, a.process.Log())
	}
	return got
}

func (a *attacker) end() { a.process.Kill() }

// runAttacker is the attacker's process. It ends with its standard input.
func runAttacker(text string) error {
	var o order
	if err := json.Unmarshal([]byte(text), &o); err != nil {
		return err
	}
	var servers []*badServer
	for _, name := range o.Behaviours {
		s, err := newBadServer(behaviours[name])
		if err != nil {
			return err
		}
		servers = append(servers, s)
	}
	clients := startSlowClients(o.Host, o.Clients, o.Kinds)
	control := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		a := account{Begun: clients.Load()}
		for _, s := range servers {
			a.Endpoints = append(a.Endpoints, endpoint{s.url, s.open(), s.requests.Load()})
		}
		_ = json.NewEncoder(w).Encode(a)
	}))
	if err := json.NewEncoder(os.Stdout).Encode(map[string]string{"url": control.URL}); err != nil {
		return err
	}
	_, err := io.Copy(io.Discard, os.Stdin)
	return err
}

func TestBehavioursHaveNames(t *testing.T) {
	for _, name := range slices.Concat([]string{"silent"}, endless) {
		if behaviours[name] == nil || strings.TrimSpace(name) == "" {
			t.Errorf("there is no behaviour %q", name)
		}
	}
}
