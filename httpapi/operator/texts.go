package operator

import (
	"github.com/labstack/echo/v4"

	"reveille/fsm"
	"reveille/httpapi/refusal"
	"reveille/httpapi/web"
)

// texts reads a body whose fields are all texts. The function get returns each of them; "" if it is missing. Texts may
// be empty only if that is said.
func (f *Face) texts(c echo.Context, empty bool, known ...string) (get func(name string) string, err error) {
	o, err := f.Bodies.Fields(c, known...)
	if err != nil {
		return nil, err
	}
	said := map[string]string{}
	for _, name := range known {
		text, named, err := web.Optional[string](o, name, "a text")
		switch {
		case err != nil:
			return nil, err
		case named && text == "" && !empty:
			return nil, refusal.New(fsm.CodeInvalidRequest, "%s is empty", name)
		}
		said[name] = text
	}
	return func(name string) string { return said[name] }, nil
}

// streamIn reads a field that must name a stream.
func streamIn(get func(string) string, name string) (string, error) {
	text := get(name)
	if text == "" {
		return "", missing(name, "the path of a stream")
	}
	path, err := fsm.CanonicalPath(text)
	if err != nil {
		return "", refusal.New(fsm.CodeInvalidPath, "%s: %v", name, err)
	}
	return path, nil
}

// offsetIn reads a field that must be an offset.
func (f *Face) offsetIn(get func(string) string, name string) (fsm.Offset, error) {
	text := get(name)
	if text == "" {
		return "", missing(name, `"-1" or an offset of the stream`)
	}
	offset, err := f.Offsets.ParseOffset(text)
	if err != nil {
		return "", refusal.New(fsm.CodeInvalidRequest, "%s: %v", name, err)
	}
	return offset, nil
}

func missing(name, want string) error {
	return refusal.New(fsm.CodeInvalidRequest, "%s is missing: it must be %s", name, want)
}
