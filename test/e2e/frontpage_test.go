package e2e

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"reveille/test/harness"
)

// The commands by which the front page has a reader put Reveille beside a server do what it says, as they stand there.
// The addresses alone are others.
func TestTheCommandsOfTheFrontPage(t *testing.T) {
	t.Parallel()
	server, redis := harness.StartRefServer(t, harness.RefOptions{}), harness.StartRedis(t)
	worker, receiver := harness.NewWorker(t), harness.NewReceiver(t)
	worker.AnswerDone()
	commands := frontPageCommands(t)

	place := strings.NewReplacer("http://localhost:4437", server.StreamRoot, "redis://localhost:6379", redis.URL)
	settings := map[string]string{}
	for _, kv := range strings.Split(shell(t, place.Replace(commands[0])+"\nenv", nil), "\n") {
		name, value, _ := strings.Cut(kv, "=")
		if strings.HasPrefix(name, "REVEILLE_") && name != "REVEILLE_PUBLIC_URL" {
			settings[name] = value
		}
	}
	if len(settings) < 4 {
		t.Fatalf("the first block sets only %q", settings)
	}
	reveille := harness.StartReveille(t, settings)
	place = strings.NewReplacer("http://localhost:8080", reveille.URL, "http://localhost:3000/worker", worker.URL,
		"http://localhost:3000/orders", receiver.URL)
	for _, subscribe := range commands[1:3] {
		var sub struct {
			ID     string `json:"subscription_id"`
			Secret string `json:"webhook_secret"`
		}
		answer := shell(t, place.Replace(subscribe), nil)
		if json.Unmarshal([]byte(answer), &sub) != nil || sub.Secret == "" {
			t.Fatalf("%s\n%s", subscribe, answer)
		}
		worker.Trust(sub.ID, sub.Secret)
	}
	shell(t, place.Replace(commands[3]), nil)
	if wake := worker.Wake(1); !slices.Contains(wake.TriggeredBy, "/agents/task-1") {
		t.Errorf("the worker was woken for %q", wake.TriggeredBy)
	}
	shell(t, strings.ReplaceAll(place.Replace(commands[3]), "/agents/task-1", "/orders/1"), nil)
	receiver.Await("/orders/1", 1)

	dir := t.TempDir()
	bin, err := harness.BuildReveille(t.Context())
	if err == nil {
		err = os.Symlink(bin, filepath.Join(dir, "reveille"))
	}
	if err != nil {
		t.Fatal(err)
	}
	seen := shell(t, "cd '"+dir+"'\n"+commands[4], []string{"REVEILLE_OPERATOR_ADDR=" + reveille.Operator})
	if !strings.Contains(seen, "stream server") {
		t.Errorf("%s\n%s", commands[4], seen)
	}
}

// The commands by which the page of pushes has a reader begin do what it says.
func TestTheFirstCommandsOfThePageOfPushes(t *testing.T) {
	t.Parallel()
	e := shared(t)
	receiver := harness.NewReceiver(t)
	place := strings.NewReplacer("http://localhost:8080", e.gateway.Root, "http://localhost:3000/hook", receiver.URL)
	blocks := commandsOf(t, "dispatcher/PUSH.md", "Start")
	for _, commands := range blocks[:2] {
		shell(t, place.Replace(commands), nil)
	}
	if _, events := receiver.Await("/orders/1007", 1); events[0] != `{"order":1007,"state":"paid"}` {
		t.Errorf("the receiver got %s", events)
	}
	shell(t, "curl -X DELETE '"+e.gateway.Root+"/**?subscription=billing'", nil)
}

// frontPageCommands are the blocks of the section that is meant to be pasted, without what builds and starts the
// program.
func frontPageCommands(t *testing.T) []string {
	t.Helper()
	blocks := commandsOf(t, "README.md", "Put it beside your own server")
	for i := range blocks {
		for _, line := range []string{"    make build\n", "    ./reveille\n"} {
			blocks[i] = strings.Replace(blocks[i], line, "", 1)
		}
	}
	if len(blocks) != 5 {
		t.Fatalf("%d blocks: %q", len(blocks), blocks)
	}
	return blocks
}

// commandsOf are the indented blocks of a section of a page.
func commandsOf(t *testing.T, page, title string) []string {
	t.Helper()
	root, err := harness.Root()
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(root, page))
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(text), "\n## "+title+"\n")
	section, _, _ = strings.Cut(section, "\n## ")
	blocks := regexp.MustCompile(`(?m)(?:^    .*\n)+`).FindAllString(section, -1)
	if len(blocks) < 2 {
		t.Fatalf("%s has no commands below %q", page, title)
	}
	return blocks
}

// shell returns what commands print, each of which has to succeed.
func shell(t *testing.T, commands string, env []string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "bash", "-euc", strings.ReplaceAll(commands, "curl ", "curl -sS --fail "))
	cmd.Env = append(os.Environ(), env...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s\n%v\n%s", commands, err, out)
	}
	return string(out)
}
