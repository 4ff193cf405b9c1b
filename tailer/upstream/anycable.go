package upstream

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"reveille/fsm"
)

// anyCable is AnyCable's Durable Streams endpoint, which only reads. Its streams are named, not made. It keeps the last
// events of each stream for a while. An offset is a number and the epoch of the broker. A broker that restarted without
// its events counts anew, in another epoch.
var anyCable = dialect{
	name: DialectAnyCable, offset: anyCableOffset, everyName: true, notKept: []int{http.StatusGone}, cacheable: true,
	signed: anyCableSigned, number: anyCableNumber, numbered: numberedAnyCableOffset,
}

// headerAnyCable is in each of AnyCable's answers.
const headerAnyCable = "X-AnyCable-Version"

// isAnyCableStart says whether AnyCable uses a text for the start of a stream, or for the end of an empty one. It is
// also true for "now", which AnyCable says where it does not look for the tail.
func isAnyCableStart(s string) bool { return s == "0" || s == "now" || s == string(fsm.Start) }

func isAnyCableOffset(s string) bool {
	_, _, ok := splitAnyCableOffset(s)
	return ok
}

// splitAnyCableOffset splits "13::IY03".
func splitAnyCableOffset(s string) (n uint64, epoch string, ok bool) {
	number, epoch, found := strings.Cut(s, "::")
	n, err := strconv.ParseUint(number, 10, 64)
	return n, epoch, found && epoch != "" && err == nil && number[0] != '+'
}

// anyCableOffset sorts offsets by their number, within each epoch.
func anyCableOffset(s string) (fsm.Offset, error) {
	if s == "0" || s == string(fsm.Start) {
		return fsm.Start, nil
	}
	if _, err := fsm.ParseOffset(s); err != nil {
		return "", err
	}
	n, epoch, ok := splitAnyCableOffset(s)
	if !ok {
		return "", fmt.Errorf("%w: AnyCable's are a number, \"::\" and an epoch", fsm.ErrOffset)
	}
	return fsm.IncarnateOffset(epoch, fmt.Sprintf("%020d", n), fmt.Sprintf("%d::%s", n, epoch)), nil
}

// anyCableNumber is 0 at the start.
func anyCableNumber(o fsm.Offset) int64 {
	n, _, _ := splitAnyCableOffset(o.Value())
	return int64(n) //nolint:gosec // it counts events
}

func numberedAnyCableOffset(epoch string, n int64) fsm.Offset {
	o, _ := anyCableOffset(fmt.Sprintf("%d::%s", n, epoch)) // epoch comes from an offset of AnyCable
	return o
}

// anyCableSigned signs the name of a stream as AnyCable's clients do. It returns the name's JSON in base64, and the
// HMAC of that in hex.
func anyCableSigned(key, path string) (parameter, value string) {
	name := strings.TrimPrefix(path, "/")
	if plain, err := url.PathUnescape(name); err == nil {
		name = plain
	}
	quoted, _ := json.Marshal(name) // every string has a form in JSON
	text := base64.StdEncoding.EncodeToString(quoted)
	mac := hmac.New(sha256.New, []byte(key))
	mac.Write([]byte(text))
	return "signed", text + "--" + hex.EncodeToString(mac.Sum(nil))
}
