package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"regexp"
	"strings"
)

var completionCommand = command{
	name: "completion", args: "bash|zsh|fish", does: "print a script that completes commands and flags in a shell",
	least: 1, most: 1,
	about: "Put one of these lines into ~/.bashrc, ~/.zshrc or ~/.config/fish/config.fish:\n" +
		"  source <(reveille completion bash)\n  source <(reveille completion zsh)\n" +
		"  reveille completion fish | source",
	flags: func(*cli, *flag.FlagSet) {}, run: (*cli).completion,
}

// argWord is what an argument may be to the letter, in command.args.
var argWord = regexp.MustCompile(`\b[a-z]+(-[a-z]+)*\b`)

// flagsOf returns the flags of a command, and whether each takes a value.
func flagsOf(cmd command) (flags []*flag.Flag) {
	f := flag.NewFlagSet(cmd.name, flag.ContinueOnError)
	cmd.flags(&cli{}, f)
	f.VisitAll(func(fl *flag.Flag) { flags = append(flags, fl) })
	return flags
}

func (c *cli) completion(_ context.Context, args []string) error {
	var text string
	switch args[0] {
	case "bash":
		text = c.bashCompletion()
	case "zsh":
		text = "autoload -Uz compinit bashcompinit && compinit -u && bashcompinit\n" + c.bashCompletion()
	case "fish":
		text = c.fishCompletion()
	default:
		return usageError{"usage: reveille completion bash|zsh|fish"}
	}
	_, err := io.WriteString(c.out, text)
	return err
}

// bashCompletion completes the command, then its words and flags. Where there is none it completes files.
func (c *cli) bashCompletion() string {
	var names []string
	var cases strings.Builder
	for _, cmd := range c.commands {
		names = append(names, cmd.name)
		words := argWord.FindAllString(cmd.args, -1)
		for _, fl := range flagsOf(cmd) {
			words = append(words, "--"+fl.Name)
		}
		fmt.Fprintf(&cases, "    %s) words='%s' ;;\n", cmd.name, strings.Join(append(words, "--help"), " "))
	}
	return fmt.Sprintf(`_reveille() {
  local words=''
  if [ "$COMP_CWORD" -eq 1 ]; then
    words='%s --help --version'
  else
    case "${COMP_WORDS[1]}" in
%s    esac
  fi
  COMPREPLY=($(compgen -W "$words" -- "${COMP_WORDS[COMP_CWORD]}"))
}
complete -o default -F _reveille reveille
`, strings.Join(names, " "), cases.String())
}

func (c *cli) fishCompletion() string {
	quoted := func(text string) string {
		return "'" + strings.ReplaceAll(strings.ReplaceAll(text, `\`, `\\`), "'", `\'`) + "'"
	}
	var b strings.Builder
	for _, cmd := range c.commands {
		fmt.Fprintf(&b, "complete -c reveille -n __fish_use_subcommand -f -a %s -d %s\n", cmd.name, quoted(cmd.does))
		within := fmt.Sprintf("complete -c reveille -n '__fish_seen_subcommand_from %s'", cmd.name)
		if words := argWord.FindAllString(cmd.args, -1); len(words) > 0 {
			fmt.Fprintf(&b, "%s -f -a '%s'\n", within, strings.Join(words, " "))
		}
		for _, fl := range flagsOf(cmd) {
			value, does := flag.UnquoteUsage(fl)
			if value != "" {
				value = " -r"
			}
			fmt.Fprintf(&b, "%s -l %s%s -d %s\n", within, fl.Name, value, quoted(does))
		}
	}
	return b.String()
}
