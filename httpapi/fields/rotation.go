package fields

import (
	"time"

	"reveille/fsm"
	"reveille/httpapi/control"
	"reveille/httpapi/web"
)

// maxOverlap is the longest time that the previous secret goes on signing after a rotation.
const maxOverlap = 7 * 24 * time.Hour

// ReadRotation reads how a secret is rotated. The body may be missing.
func ReadRotation(o web.Object) (r fsm.Rotation, err error) {
	r = fsm.Rotation{Random: control.Random(32), Overlap: fsm.RotationOverlap}
	overlap, named, err := readDuration(o, "overlap", 0, maxOverlap)
	if err != nil {
		return r, err
	}
	if named {
		r.Overlap = overlap
	}
	if r.KeepPrevious, _, err = web.Optional[bool](o, "keep_previous", "true or false"); err != nil {
		return r, err
	}
	return r, o.Only("overlap", "keep_previous")
}
