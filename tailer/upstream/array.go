package upstream

import (
	"bufio"
	"errors"
	"io"
	"strings"

	"reveille/fsm"
)

// errNotJSON says that an answer's content type is JSON, but its data is not.
var errNotJSON = AnswerError{What: "it is not an array of JSON"}

const jsonSpace = " \t\r\n"

// array splits a JSON array into its elements as they arrive. It finds where they end. The caller checks whether they
// are valid.
type array struct {
	in    *bufio.Reader
	begun bool
	// open is true while the element is neither taken nor skipped. inside is true while there is more of it to read.
	// The part in held was read, but not taken, because the element was too long.
	open, inside bool
	held         []byte
	// depth is how many arrays and objects of the element are open. deepest is the highest depth so far. The flag
	// quoted is true in a string, and escaped is true after a backslash there.
	depth, deepest  int
	quoted, escaped bool
}

// more goes to the next element, unless the present one is neither taken nor skipped. At the end of the array it checks
// that the answer ends, too, and returns false.
func (a *array) more() (bool, error) {
	if a.open {
		return true, nil
	}
	first := !a.begun
	c, err := a.peek()
	switch {
	case err != nil:
		return false, cut(err)
	case !first && c == ']':
		return false, a.end()
	case first && c != '[', !first && c != ',':
		return false, errNotJSON
	}
	a.begun = true
	c, err = a.after()
	switch {
	case err != nil:
		return false, cut(err)
	case first && c == ']':
		return false, a.end()
	case strings.IndexByte(",:]}", c) >= 0:
		return false, errNotJSON
	}
	a.open, a.inside, a.deepest = true, true, 0
	return true, nil
}

// rest reads to the end of the array and counts the elements, from the present one on.
func (a *array) rest() (n int64, err error) {
	for more := true; more; n++ {
		if err := a.skip(); err != nil {
			return 0, err
		}
		if more, err = a.more(); err != nil {
			return 0, err
		}
	}
	return n, nil
}

// end checks that nothing follows the array.
func (a *array) end() error {
	switch _, err := a.after(); {
	case errors.Is(err, io.EOF):
		return nil
	case err != nil:
		return err
	}
	return errNotJSON
}

// deep says whether the element, as far as it was read, is nested deeper than an event may be.
func (a *array) deep() bool { return a.deepest > fsm.MaxDepth }

// take returns the element unless it is longer than limit, or too deep. In these cases whole is false. The caller may
// take it with a higher limit, or skip it.
func (a *array) take(limit int) (element []byte, whole bool, err error) {
	for a.inside && len(a.held) <= limit && !a.deep() {
		window, err := a.window()
		if err != nil {
			return nil, false, cut(err)
		}
		n := a.scan(window)
		a.held = append(a.held, window[:n]...)
		_, _ = a.in.Discard(n)
	}
	if len(a.held) > limit || a.deep() {
		return nil, false, nil
	}
	element, a.held, a.open = a.held, nil, false
	return element, true, nil
}

// skip reads the element to its end and keeps nothing of it.
func (a *array) skip() error {
	for a.held = nil; a.inside; {
		window, err := a.window()
		if err != nil {
			return cut(err)
		}
		_, _ = a.in.Discard(a.scan(window))
	}
	a.open = false
	return nil
}

// scan returns how much of b belongs to the element.
func (a *array) scan(b []byte) int {
	depth, quoted, escaped := a.depth, a.quoted, a.escaped
	ends := func(n int) int {
		a.inside, a.depth, a.quoted, a.escaped = false, 0, false, false
		return n
	}
	for i, c := range b {
		if quoted {
			switch {
			case escaped:
				escaped = false
			case c == '\\':
				escaped = true
			case c == '"':
				if quoted = false; depth == 0 {
					return ends(i + 1)
				}
			}
			continue
		}
		switch c {
		case '"':
			quoted = true
		case '[', '{':
			depth++
			a.deepest = max(a.deepest, depth)
		case ']', '}':
			if depth == 0 {
				return ends(i)
			}
			if depth--; depth == 0 {
				return ends(i + 1)
			}
		case ',', ' ', '\t', '\r', '\n':
			if depth == 0 {
				return ends(i)
			}
		}
	}
	a.depth, a.quoted, a.escaped = depth, quoted, escaped
	return len(b)
}

// window returns what has arrived. It waits for at least one byte.
func (a *array) window() ([]byte, error) {
	if _, err := a.in.Peek(1); err != nil {
		return nil, err
	}
	return a.in.Peek(a.in.Buffered())
}

// peek returns the next byte that is no space.
func (a *array) peek() (byte, error) {
	for {
		switch b, err := a.in.Peek(1); {
		case err != nil:
			return 0, err
		case strings.IndexByte(jsonSpace, b[0]) < 0:
			return b[0], nil
		}
		_, _ = a.in.Discard(1)
	}
}

// after discards the byte that peek returned, and returns the next one.
func (a *array) after() (byte, error) {
	_, _ = a.in.Discard(1)
	return a.peek()
}

// cut turns the end of the input into the error of an answer that was cut short.
func cut(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}
