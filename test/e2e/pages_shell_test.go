package e2e

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"reveille/test/harness"
)

// notRun are the commands of the pages that the test does not run.
var notRun = []struct {
	command *regexp.Regexp
	why     string
}{
	{regexp.MustCompile(`^\./reveille$`), "it starts a replica, and the test has one"},
	{regexp.MustCompile(`^go test `), "CI runs the tests"},
	{regexp.MustCompile(`^docker `), "test/image builds the image"},
	{regexp.MustCompile(`^helm `), "it needs a cluster; test/chart renders the chart"},
}

// TestEveryCommandOfThePagesSucceeds runs each block of shell on each page against real servers, as a reader pastes it.
func TestEveryCommandOfThePagesSucceeds(t *testing.T) {
	t.Parallel()
	blocks, all := pastedBlocks(t), ""
	if len(blocks) < 30 {
		t.Fatalf("only %d blocks: that cannot be all", len(blocks))
	}
	for _, b := range blocks {
		all += b.script() + "\n"
	}
	w := newPastes(t)
	for i, places := 0, w.places(); i < len(places); i += 2 {
		if !strings.Contains(all, places[i]) {
			t.Errorf("no page has %q any more", places[i])
		}
	}
	skipped := make([]int, len(notRun))
	for _, b := range blocks {
		if b = b.without(skipped); len(b.commands) > 0 {
			w.run(b)
		}
	}
	for i, n := range skipped {
		if n == 0 {
			t.Errorf("no page has a command %s any more", notRun[i].command)
		}
	}
}

func TestTheShellOfAPageIsFound(t *testing.T) {
	t.Parallel()
	const page = "curl in prose\n\n    curl a \\\n      -d b   # why\n    export A=b\n\n" +
		"    $ reveille x\n    reveille y\n\n    demo  none\n    reveille  → none\n\n- item\n\n" +
		"      reveille z\n```js\nexport A\n```\n```\nmake c\n\n# d\n```\n    {\"none\":1}\n    helm e"
	want := []pasted{
		{"P.md:3", []string{"curl a \\\n-d b   # why", "export A=b"}},
		{"P.md:7", []string{"reveille x"}},
		{"P.md:15", []string{"reveille z"}},
		{"P.md:20", []string{"make c", "", "# d"}},
		{"P.md:24", []string{`{"none":1}`, "helm e"}},
	}
	if got := shellOf("P.md", page); !reflect.DeepEqual(got, want) {
		t.Errorf("found %q\nwant  %q", got, want)
	}
}

// pasted are the commands of one block of a page.
type pasted struct {
	at       string
	commands []string
}

func (p pasted) script() string { return strings.Join(p.commands, "\n") }

// without leaves out the commands in notRun, and counts them.
func (p pasted) without(skipped []int) pasted {
	kept := pasted{at: p.at}
next:
	for _, command := range p.commands {
		plain, _, _ := strings.Cut(command, " #")
		for i, x := range notRun {
			if x.command.MatchString(strings.TrimSpace(plain)) {
				skipped[i]++
				continue next
			}
		}
		kept.commands = append(kept.commands, command)
	}
	return kept
}

// pastedBlocks are the blocks of shell on all pages. Those that change the data in Redis come last.
func pastedBlocks(t *testing.T) (blocks []pasted) {
	t.Helper()
	root, err := harness.Root()
	if err != nil {
		t.Fatal(err)
	}
	var last []pasted
	err = fs.WalkDir(os.DirFS(root), ".", func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (d.Name() == "node_modules" || name != "." && strings.HasPrefix(d.Name(), ".")):
			return fs.SkipDir
		case !strings.HasSuffix(name, ".md"):
			return nil
		}
		text, err := os.ReadFile(filepath.Join(root, name))
		for _, b := range shellOf(name, string(text)) {
			if strings.Contains(b.script(), "redis-cli ") {
				last = append(last, b)
			} else {
				blocks = append(blocks, b)
			}
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return append(blocks, last...)
}

// shellOf are the blocks of shell of a page: in fences, or indented.
func shellOf(page, text string) (found []pasted) {
	var block []string
	fenced, other := false, false
	lines := strings.Split(text, "\n")
	for i, line := range append(lines, "") {
		plain := strings.TrimSpace(line)
		fence := strings.HasPrefix(plain, "```")
		switch {
		case !fence && fenced && !other, !fence && !fenced && plain != "" && strings.HasPrefix(line, "    "):
			block = append(block, plain)
			continue
		case fence:
			fenced = !fenced
			other = plain != "```" && plain != "```sh" && plain != "```bash" && plain != "```console"
		}
		if commands := commandsIn(block); commands != nil {
			found = append(found, pasted{fmt.Sprintf("%s:%d", page, i+1-len(block)), commands})
		}
		block = nil
	}
	return found
}

// begins is the beginning of a line of shell. A block with such a line has nothing but shell, and what that prints.
var begins = regexp.MustCompile(
	`^(\$ |export [A-Z]|(curl|redis-cli|go|make|helm|kubectl|docker|openssl|git|npm) |(\./)?reveille( [a-z]|$))`)

// commandsIn are the commands of a block. If some lines have a prompt, the others are output.
func commandsIn(block []string) (commands []string) {
	shell, prompts, more := false, false, false
	for _, line := range block {
		shell, prompts = shell || begins.MatchString(line), prompts || strings.HasPrefix(line, "$ ")
	}
	if !shell {
		return nil
	}
	for _, line := range block {
		command, prompt := strings.CutPrefix(line, "$ ")
		switch {
		case more:
			commands[len(commands)-1] += "\n" + line
		case prompt || !prompts:
			commands = append(commands, command)
		default:
			continue
		}
		more = strings.HasSuffix(line, `\`)
	}
	return commands
}
