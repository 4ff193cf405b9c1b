package harness

import (
	"fmt"
	"io"
	"os/exec"
	"sync"
	"syscall"
)

// guardScript reads "+ PID" and "- PID" lines and, when its input ends, kills what is left. Its input ends when the
// test binary does, even if that was killed or ran into its time limit and did no cleanup of its own. A signal to all
// processes of a group passes it by.
const guardScript = `
pids=
while read -r op pid; do
	case $op in
	+) pids="$pids $pid" ;;
	-) rest=; for p in $pids; do [ "$p" = "$pid" ] || rest="$rest $p"; done; pids=$rest ;;
	esac
done
for p in $pids; do kill -9 "$p" 2>/dev/null; done
`

var guard orphanGuard

// orphanGuard is a small shell process that outlives this one for just long enough to end its children.
type orphanGuard struct {
	once sync.Once
	mu   sync.Mutex
	in   io.Writer
}

func (g *orphanGuard) add(pid int)    { g.tell("+", pid) }
func (g *orphanGuard) remove(pid int) { g.tell("-", pid) }

func (g *orphanGuard) tell(op string, pid int) {
	g.once.Do(func() {
		cmd := exec.Command("sh", "-c", guardScript)
		cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		in, err := cmd.StdinPipe()
		if err == nil {
			err = cmd.Start()
		}
		if err != nil {
			panic("harness: start the guard: " + err.Error())
		}
		g.in = in
	})
	g.mu.Lock()
	defer g.mu.Unlock()
	// A guard that is gone costs nothing but the guarding.
	_, _ = fmt.Fprintln(g.in, op, pid)
}
