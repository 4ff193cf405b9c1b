package redisstore

import (
	"regexp"
	"strings"
)

// library is lua/lib.lua in parts. Each script begins with the functions that it uses.
type library struct {
	parts []libraryPart
	// functions has the words of each function by its name, loose all words outside of functions. Each start of the
	// program links every script, so a name is looked up, not searched.
	functions map[string][]string
	loose     []string
}

var ownLibrary = readLibrary(source("lib"))

// Link returns a script as Redis gets it, with what it uses of a library. The text lib is lua/lib.lua or a variant of
// it.
func Link(lib, script string) string { return readLibrary(lib).with(script) }

// libraryPart is a function of the library, or a line outside of functions. A line has no name.
type libraryPart struct {
	name, text string
	// words are all words of the part's code.
	words []string
}

var (
	functionHead = regexp.MustCompile(`^local function (\w+)`)
	// A field such as table.remove is one word. A quote belongs to the word behind it. Neither is a function of the
	// library.
	luaWord = regexp.MustCompile(`[\w.']*[A-Za-z_]\w*`)
)

// wordsOf returns the words of a text, except in comments.
func wordsOf(text string) (words []string) {
	for line := range strings.Lines(text) {
		code, _, _ := strings.Cut(line, "--")
		words = append(words, luaWord.FindAllString(code, -1)...)
	}
	return words
}

// readLibrary splits a text at its functions. A function begins and ends at the start of a line, unless it has one line
// only.
func readLibrary(text string) library {
	l := library{parts: partsOf(text), functions: map[string][]string{}}
	for _, part := range l.parts {
		if part.name == "" {
			l.loose = append(l.loose, part.words...)
		} else {
			l.functions[part.name] = part.words
		}
	}
	return l
}

func partsOf(text string) (parts []libraryPart) {
	var function *libraryPart
	for line := range strings.Lines(text) {
		words := wordsOf(line)
		if function == nil {
			part := libraryPart{text: line, words: words}
			if m := functionHead.FindStringSubmatch(line); m != nil {
				part.name = m[1]
			}
			parts = append(parts, part)
			if part.name != "" && !strings.HasSuffix(strings.TrimRight(line, "\n"), " end") {
				function = &parts[len(parts)-1]
			}
			continue
		}
		function.text += line
		function.words = append(function.words, words...)
		if strings.TrimRight(line, "\n") == "end" {
			function = nil
		}
	}
	return parts
}

// rare is the function that few calls need. It uses much that nothing else uses.
const rare = "start_over"

// usedOf returns the words of a script and of the library functions that it uses. A function counts as used if its name
// is among them. The function named closed counts, but not what it uses.
func (l library) usedOf(script, closed string) map[string]bool {
	used := map[string]bool{}
	words := append(wordsOf(script), l.loose...)
	for len(words) > 0 {
		word := words[0]
		words = words[1:]
		if used[word] {
			continue
		}
		used[word] = true
		if word != closed {
			words = append(words, l.functions[word]...)
		}
	}
	return used
}

// with returns a script that begins with the constants and the functions that it uses, as lib.lua says. Functions that
// are left out or moved leave empty lines, so errors name the lines of lib.lua. Errors in moved functions name the
// first line of rare.
func (l library) with(script string) string {
	used, often := l.usedOf(script, ""), l.usedOf(script, rare)
	var inner strings.Builder
	for _, part := range l.parts {
		if part.name != "" && used[part.name] && !often[part.name] {
			inner.WriteString(inOneLine(part.text))
		}
	}
	var text strings.Builder
	within := false
	for _, part := range l.parts {
		if part.name != "" && !within {
			within = true
			text.WriteString("return (function() ")
		}
		switch {
		case part.name == rare && used[rare]:
			text.WriteString("local function " + rare + "(...) " + inner.String() + strings.TrimRight(part.text, "\n") +
				" return " + rare + "(...) end\n")
		case part.name == "" || often[part.name]:
			text.WriteString(part.text)
		default:
			text.WriteString(strings.Repeat("\n", strings.Count(part.text, "\n")))
		}
	}
	return withConstants(text.String()+script+"\nend)()\n", used)
}

// inOneLine returns a function without comments and line breaks.
func inOneLine(function string) string {
	var text strings.Builder
	for line := range strings.Lines(function) {
		code, _, _ := strings.Cut(line, "--")
		text.WriteString(strings.TrimSpace(code) + " ")
	}
	return text.String()
}
