package chart

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	core "k8s.io/api/core/v1"
)

// patience bounds every wait for a process.
const patience = 10 * time.Minute

// nextPort is where the search for a free port goes on, so that no two tests are given the same one. It begins below
// the range from which kernels take the ports of outgoing connections: one of those could take a port between its being
// found and the program's listening on it.
var nextPort atomic.Int32

func init() { nextPort.Store(20000 + rand.Int32N(11000)) }

// onFreePorts are values for ports that nobody listens on.
func onFreePorts(t testing.TB) string {
	t.Helper()
	return fmt.Sprintf("{ports: {api: %d, operator: %d}}", freePort(t), freePort(t))
}

func freePort(t testing.TB) int32 {
	t.Helper()
	for range 200 {
		port := nextPort.Add(1)
		if ln, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port)); err == nil {
			_ = ln.Close()
			return port
		}
	}
	t.Fatalf("200 ports up to %d are in use", nextPort.Load())
	return 0
}

// running is the program with the environment of the rendered container.
type running struct {
	container core.Container
	cmd       *exec.Cmd
	ended     chan error
	log       *lockedText
}

type lockedText struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *lockedText) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *lockedText) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

func startAsRendered(t testing.TB, m *manifest) *running {
	t.Helper()
	container, _ := m.program(t)
	r := &running{
		container: container, cmd: exec.Command(program(t), container.Args...), ended: make(chan error, 1),
		log: &lockedText{},
	}
	r.cmd.Stdout, r.cmd.Stderr = r.log, r.log
	for name, value := range m.environment(t, container) {
		if strings.HasSuffix(name, "_ADDR") {
			value = "127.0.0.1" + value // in a pod it is every address; a test stays on this machine
		}
		r.cmd.Env = append(r.cmd.Env, name+"="+value)
	}
	if err := r.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { r.ended <- r.cmd.Wait() }()
	t.Cleanup(func() { _ = r.cmd.Process.Kill() })
	return r
}

// port returns the number of one of the container's ports.
func (r *running) port(t testing.TB, name string) int32 {
	t.Helper()
	for _, p := range r.container.Ports {
		if p.Name == name {
			return p.ContainerPort
		}
	}
	t.Fatalf("the container has no port %q", name)
	return 0
}

// get asks a port of the container by its name.
func (r *running) get(t testing.TB, port, path string) (int, string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet,
		fmt.Sprintf("http://127.0.0.1:%d%s", r.port(t, port), path), nil)
	if err != nil {
		return 0, "", err
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, "", err
	}
	defer func() { _ = res.Body.Close() }()
	body, err := io.ReadAll(res.Body)
	return res.StatusCode, string(body), err
}

// await waits until the operator port answers a path with 200.
func (r *running) await(t testing.TB, path string) {
	t.Helper()
	operator := r.container.ReadinessProbe.HTTPGet.Port.String()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.After(patience); ; {
		status, body, err := r.get(t, operator, path)
		if status == http.StatusOK {
			return
		}
		select {
		case ended := <-r.ended:
			t.Fatalf("the program ended: %v\n%s", ended, r.log)
		case <-deadline:
			t.Fatalf("GET %s: %d %s %v\n%s", path, status, body, err, r.log)
		case <-tick.C:
		}
	}
}

// stop ends the program as Kubernetes does.
func (r *running) stop(t testing.TB) {
	t.Helper()
	if err := r.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-r.ended:
		if err != nil {
			t.Errorf("the program was stopped and ended with %v\n%s", err, r.log)
		}
	case <-time.After(patience):
		t.Fatalf("the program was stopped and goes on\n%s", r.log)
	}
}

// fromSecret gives the variables of a container that come from a user's Secret a value.
func fromSecret(c core.Container, secret, value string) {
	for i, e := range c.Env {
		if e.ValueFrom != nil && e.ValueFrom.SecretKeyRef != nil && e.ValueFrom.SecretKeyRef.Name == secret {
			c.Env[i].ValueFrom, c.Env[i].Value = nil, value
		}
	}
}

func TestProbesServicesAndTheHelmTestReachTheProgram(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"gateway", "sidecar", "a token"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			values := `{replicaCount: 1, redis: {url: embedded}}`
			if mode == "a token" {
				values = `{replicaCount: 1, redis: {url: embedded}, operatorTokens: {existingSecret: mine}}`
			}
			m := render(t, chartDir, newest, required, values, onFreePorts(t))
			if mode == "sidecar" {
				m = renderExample(t, `reveille: {redis: {existingSecret: "", url: embedded}}`,
					"reveille: "+onFreePorts(t))
			}
			const token = "the-token-of-a-test-of-the-chart"
			container, _ := m.program(t)
			fromSecret(container, "mine", token)
			r := startAsRendered(t, m)
			for _, probe := range []*core.Probe{r.container.LivenessProbe, r.container.ReadinessProbe} {
				r.await(t, probe.HTTPGet.Path)
			}
			if status, body, err := r.get(t, r.container.LivenessProbe.HTTPGet.Port.String(),
				"/healthz"); status != http.StatusOK {
				t.Errorf("GET /healthz: %d %s %v", status, body, err)
			}
			api := named[*core.Service](t, m, "wake-reveille").Spec.Ports[0].TargetPort.String()
			if status, body, err := r.get(t, api, "/**?subscriptions"); status != http.StatusOK {
				t.Errorf("the Service leads to port %s, which answers %d %s %v", api, status, body, err)
			}

			ask := named[*core.Pod](t, m, "wake-reveille-test").Spec.Containers[0]
			operator := named[*core.Service](t, m, "wake-reveille-operator")
			inside := fmt.Sprintf("http://%s:%d", operator.Name, operator.Spec.Ports[0].Port)
			if len(ask.Args) == 0 || ask.Args[len(ask.Args)-1] != inside {
				t.Fatalf("helm test runs %q, which does not ask %s", ask.Args, inside)
			}
			// The name of the Service is known in a cluster only.
			ask.Args[len(ask.Args)-1] = fmt.Sprintf("http://127.0.0.1:%d",
				r.port(t, operator.Spec.Ports[0].TargetPort.String()))
			fromSecret(ask, "mine", token)
			test := exec.Command(program(t), ask.Args...)
			for name, value := range m.environment(t, ask) {
				test.Env = append(test.Env, name+"="+value)
			}
			if out, err := test.CombinedOutput(); err != nil {
				t.Errorf("reveille %q: %v\n%s", ask.Args, err, out)
			}
			r.stop(t)
			if out, err := exec.Command(program(t), ask.Args...).CombinedOutput(); err == nil {
				t.Errorf("reveille %q succeeds though nobody is there:\n%s", ask.Args, out)
			}
		})
	}
}
