package operator

import (
	"net/http"
	"strings"

	"github.com/labstack/echo/v4"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"reveille/fsm"
	"reveille/httpapi/control"
	"reveille/httpapi/refusal"
	"reveille/httpapi/web"
)

// logLevels are the levels that an operator may choose.
var logLevels = map[string]zapcore.Level{
	"debug": zap.DebugLevel, "info": zap.InfoLevel, "warn": zap.WarnLevel, "error": zap.ErrorLevel,
}

type logLevelBody struct {
	Level string `json:"level"`
}

func (f *Face) getLogLevel(c echo.Context) error {
	return web.Answer(c, http.StatusOK, logLevelBody{f.LogLevel.String()}, nil)
}

// setLogLevel changes the level of this replica, until it ends.
func (f *Face) setLogLevel(c echo.Context) error {
	o, err := f.Bodies.Fields(c, "level")
	if err != nil {
		return err
	}
	const want = "debug, info, warn or error"
	text, err := web.Required[string](o, "level", want)
	if err != nil {
		return err
	}
	level, ok := logLevels[strings.ToLower(text)]
	if !ok {
		return refusal.New(fsm.CodeInvalidRequest, "level must be %s", want)
	}
	was := f.LogLevel.Level()
	// This line appears at the more verbose of the old and the new level: a log that ends without a word is no help.
	f.LogLevel.SetLevel(min(was, level, zap.InfoLevel))
	f.Control.Log.Info("log level changed", zap.Stringer("was", was), zap.Stringer("level", level))
	f.LogLevel.SetLevel(level)
	if was != level {
		change := fsm.Change{What: "log level changed", About: f.Health.ReplicaID()}
		change.Before, change.After = control.Differing(logLevelBody{was.String()}, logLevelBody{level.String()})
		f.Control.Note(c.Request().Context(), change)
	}
	return web.Answer(c, http.StatusOK, logLevelBody{level.String()}, nil)
}
