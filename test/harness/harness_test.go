package harness

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// orphanMode makes this test binary start a process, say its pid and wait to be killed.
const orphanMode = "REVEILLE_HARNESS_ORPHAN"

func TestMain(m *testing.M) {
	if os.Getenv(orphanMode) != "" {
		p, err := Start("sleep", &Output{}, exec.Command("sleep", "600"))
		if err != nil {
			panic(err)
		}
		fmt.Println(p.Pid())
		select {}
	}
	goleak.VerifyTestMain(m)
}

func TestRedisStartsIsPausedAndStartsAgain(t *testing.T) {
	r := StartRedis(t)
	c := r.Client()
	if err := c.Set(t.Context(), "k", "v", 0).Err(); err != nil {
		t.Fatal(err)
	}
	r.Pause()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := c.Get(ctx, "k").Err(); err == nil {
		t.Error("a paused server answered")
	}
	r.Resume()
	if got := c.Get(t.Context(), "k").Val(); got != "v" {
		t.Errorf("after the pause k is %q, want \"v\"", got)
	}
	r.Kill()
	r.Restart()
	if n := c.DBSize(t.Context()).Val(); n != 0 {
		t.Errorf("%d keys after a restart without persistence, want 0", n)
	}
	if err := r.Stop(); err != nil {
		t.Errorf("stop: %v", err)
	}
}

func TestRefServerServesStreams(t *testing.T) {
	s := StartRefServer(t, RefOptions{})
	c := NewClient(t, s.StreamRoot)
	if tail := c.Tail("/agents/a"); tail != "" {
		t.Errorf("tail of a stream that is not there: %q", tail)
	}
	empty := c.Create("/agents/a")
	tail := c.Append("/agents/a", `{"n":1}`)
	if c.Tail("/agents/a") != tail || tail <= empty {
		t.Errorf("tail %q, after the append %q, want it to have grown from %q", c.Tail("/agents/a"), tail, empty)
	}
	messages, next := c.Read("/agents/a", "-1")
	if len(messages) != 1 || string(messages[0]) != `{"n":1}` || next != tail {
		t.Errorf("read %s up to %q, want one message up to %q", messages, next, tail)
	}
	c.DeleteStream("/agents/a")
	if tail := c.Tail("/agents/a"); tail != "" {
		t.Errorf("tail of a deleted stream: %q", tail)
	}
}

func TestRefServerKeepsARegistryIfAsked(t *testing.T) {
	s := StartRefServer(t, RefOptions{Registry: true, LongPoll: time.Second})
	c := NewClient(t, s.StreamRoot)
	c.Create("/agents/a")
	Eventually(t, Wait, "the stream is in the registry", func() error {
		if c.Tail("/__registry__") == "" {
			return errors.New("no registry stream")
		}
		messages, _ := c.Read("/__registry__", "-1")
		if all := fmt.Sprintf("%s", messages); !strings.Contains(all, `"key":"agents/a"`) {
			return errors.New(all)
		}
		return nil
	})
}

func TestRefServerKeepsItsDataOverARestartIfAsked(t *testing.T) {
	s := StartRefServer(t, RefOptions{DataDir: t.TempDir()})
	c := NewClient(t, s.StreamRoot)
	c.Create("/a")
	tail := c.Append("/a", `1`)
	if err := s.Stop(); err != nil {
		t.Errorf("stop: %v", err)
	}
	s.Restart()
	if got := c.Tail("/a"); got != tail {
		t.Errorf("tail %q after the restart, want %q", got, tail)
	}
}

func TestWorkerRecordsAndAnswers(t *testing.T) {
	w := NewWorker(t)
	w.AnswerStatus(http.StatusTeapot)
	c := NewClient(t, w.URL)
	res := c.Do(http.MethodPost, "/hook", `{"consumer_id":"s:%2Fa","epoch":3,"streams":[{"path":"/a","offset":"-1"}]}`,
		jsonType...)
	if res.Status != http.StatusTeapot {
		t.Errorf("status %d, want 418", res.Status)
	}
	wake := w.Wake(1)
	if wake.Subscription() != "s" || wake.Epoch != 3 || wake.Offset("/a") != "-1" || wake.Path != "/hook" {
		t.Errorf("recorded %+v", wake)
	}
}

func TestVerifySignature(t *testing.T) {
	// From: printf '1704067200.{"a":1}' | openssl dgst -sha256 -hmac whsec_test
	const header = "t=1704067200,sha256=%s"
	const sum = "0111810328deec840138711f28bf06ec7865d5978292ad6729cfbc017056ab7a"
	now := time.Unix(1704067200, 0)
	cases := []struct {
		name, secret, header, body string
		at                         time.Time
		ok                         bool
	}{
		{"a right one is accepted", "whsec_test", fmt.Sprintf(header, sum), `{"a":1}`, now, true},
		{
			"five minutes late is accepted", "whsec_test", fmt.Sprintf(header, sum), `{"a":1}`,
			now.Add(5 * time.Minute),
			true,
		},
		{
			"more than five minutes late is refused", "whsec_test", fmt.Sprintf(header, sum), `{"a":1}`,
			now.Add(301 * time.Second), false,
		},
		{
			"more than five minutes early is refused", "whsec_test", fmt.Sprintf(header, sum), `{"a":1}`,
			now.Add(-301 * time.Second), false,
		},
		{"another secret is refused", "whsec_other", fmt.Sprintf(header, sum), `{"a":1}`, now, false},
		{"another body is refused", "whsec_test", fmt.Sprintf(header, sum), `{"a":2}`, now, false},
		{"a missing header is refused", "whsec_test", "", `{"a":1}`, now, false},
		{"a header that is cut short is refused", "whsec_test", "t=1704067200", `{"a":1}`, now, false},
		{"a signature that is not hex is refused", "whsec_test", fmt.Sprintf(header, "zz"), `{"a":1}`, now, false},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			if err := VerifySignature(c.secret, c.header, []byte(c.body), c.at); (err == nil) != c.ok {
				t.Errorf("error %v, want ok %t", err, c.ok)
			}
		})
	}
}

// TestVerifyStandard tries it on the example in the specification of Standard Webhooks.
func TestVerifyStandard(t *testing.T) {
	const secret, right = "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD", "v1,tZ1I4/hDygAJgO5TYxiSd6Sd0kDW6hPenDe+bTa3Kkw="
	const body = `{"email":"test@example.com","username":"test_user"}`
	at := time.Unix(1649367553, 0)
	for _, c := range []struct {
		name, secret, id, signature, body string
		late                              time.Duration
		ok                                bool
	}{
		{name: "a right one is accepted", ok: true},
		{name: "five minutes late is accepted", late: 5 * time.Minute, ok: true},
		{name: "a right one beside another is accepted", signature: "v1,AAAA " + right, ok: true},
		{name: "more than five minutes late is refused", late: 301 * time.Second},
		{name: "more than five minutes early is refused", late: -301 * time.Second},
		{name: "another secret is refused", secret: "whsec_D2FVsBQIhrscChlQIMV+b5sSYspob7oD"},
		{name: "a secret of the other scheme is refused", secret: "whsec_test_"},
		{name: "another id is refused", id: "msg_2"},
		{name: "another body is refused", body: "{}"},
		{name: "another version is refused", signature: "v1a" + right[2:]},
		{name: "a signature of the other scheme is refused", signature: "t=1649367553,sha256=00"},
	} {
		header := http.Header{}
		header.Set("Webhook-Id", cmp.Or(c.id, "msg_27UH4WbU6Z5A5EzD8u03UvzRbpk"))
		header.Set("Webhook-Timestamp", "1649367553")
		header.Set("Webhook-Signature", cmp.Or(c.signature, right))
		err := VerifyStandard(cmp.Or(c.secret, secret), header, []byte(cmp.Or(c.body, body)), at.Add(c.late))
		if (err == nil) != c.ok {
			t.Errorf("%s: error %v", c.name, err)
		}
	}
	if err := VerifyStandard(secret, http.Header{}, []byte(body), at); err == nil {
		t.Error("no headers are accepted")
	}
}

func TestFreePortsAreDifferentWhileTheTestRuns(t *testing.T) {
	seen := map[int]bool{}
	for range 50 {
		p := FreePort(t)
		if seen[p] {
			t.Fatalf("port %d was given out twice", p)
		}
		seen[p] = true
	}
}

func TestNoProcessOutlivesAKilledTestBinary(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), self)
	cmd.Env = append(os.Environ(), orphanMode+"=1")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var pid int
	line, _ := bufio.NewReader(out).ReadString('\n')
	if _, err := fmt.Sscan(line, &pid); err != nil {
		t.Fatalf("the child said %q: %v", line, err)
	}
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	Eventually(t, Wait, "the orphan is killed", func() error {
		if err := syscall.Kill(pid, 0); !errors.Is(err, syscall.ESRCH) && !isZombie(pid) {
			return fmt.Errorf("process %d is still there (%w)", pid, err)
		}
		return nil
	})
}

// isZombie says whether a process has ended while no parent has waited for it: there may be no init process here to do
// so.
func isZombie(pid int) bool {
	state, err := exec.Command("ps", "-o", "stat=", "-p", fmt.Sprint(pid)).Output()
	return err == nil && strings.HasPrefix(strings.TrimSpace(string(state)), "Z")
}
