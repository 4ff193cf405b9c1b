package harness

import (
	"fmt"
	"io"
	"os/exec"
	"sync"
	"syscall"
)

// guardScript reads "+ PID" and "- PID" lines and, when its input ends, kills what is left. Its input ends with the
// test binary. That holds even if the binary was killed or ran into its time limit, without a cleanup of its own. A
// signal to all processes of the binary's group does not reach the script.
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

// orphanGuard is a small shell process. It outlives this process just long enough to end its children.
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
	// If the guard is gone, only its protection is lost.
	_, _ = fmt.Fprintln(g.in, op, pid)
}
