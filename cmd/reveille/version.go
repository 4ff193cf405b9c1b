package main

import (
	"regexp"
	"runtime/debug"
)

// The linker sets version for releases.
var version = ""

// pseudo matches how Go names a version that is no release.
var pseudo = regexp.MustCompile(`-(0\.)?\d{14}-[0-9a-f]{12}`)

// programVersion returns the release. Without one, it returns the revision that the program was built from.
func programVersion() string {
	if version != "" {
		return version
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "dev"
	}
	return versionOf(info)
}

func versionOf(info *debug.BuildInfo) string {
	revision, dirty := "", ""
	for _, s := range info.Settings {
		switch {
		case s.Key == "vcs.revision" && len(s.Value) >= 12:
			revision = "-" + s.Value[:12]
		case s.Key == "vcs.modified" && s.Value == "true":
			dirty = "-dirty"
		}
	}
	if v := info.Main.Version; v != "" && v != "(devel)" && dirty == "" && !pseudo.MatchString(v) {
		return v
	}
	return "dev" + revision + dirty
}
