package format

import (
	"cmp"
	"encoding/json"
	"fmt"
	"mime"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/cloudevents/sdk-go/v2/event"
	"github.com/cloudevents/sdk-go/v2/types"
)

// DefaultType is the type of a CloudEvent around an event that has no type of its own.
const DefaultType = "durable-streams.event"

const (
	contentTypeAttribute = "datacontenttype"
	dataMember           = "data"
	base64Member         = "data_base64"
)

// attributesOfSpec are the attributes of the specification, which are texts. Any other attribute of an event is an
// extension.
var attributesOfSpec = []string{
	"specversion", "id", "source", "type", "subject", "time", contentTypeAttribute, "dataschema",
}

// envelope is an event as a CloudEvent.
//
// The SDK builds and checks its attributes. The SDK's reader of JSON does not suit the events of other programs. It
// panics at a data_base64 that is a number, cuts numbers off and takes any name.
type envelope struct {
	// attributes are the event's own, in their canonical string representation (CloudEvents, Type System).
	attributes map[string]string
	// data is nil if there is none. Without base64, it is JSON; it may also be a text if asItStands is set.
	data   []byte
	base64 bool
	// asItStands is the JSON of an event that is a CloudEvent in its stream; otherwise nil.
	asItStands []byte
}

// envelopeOf returns an event of a delivery as a CloudEvent: the event itself if it is one, otherwise a new one around
// it.
func envelopeOf(d Content, i int) (envelope, error) {
	members := d.members(i)
	if e, ok := readEnvelope(members); ok {
		e.asItStands = d.Batch.Events[i]
		return e, nil
	}
	e := envelopeFor(d, i, members)
	_, err := checked(e.attributes)
	return e, err
}

// members returns the members of an event that is a JSON object.
func (d Content) members(i int) (members map[string]json.RawMessage) {
	if d.Batch.JSON {
		_ = json.Unmarshal(d.Batch.Events[i], &members) // an event that is no object has no members
	}
	return members
}

// envelopeFor makes a CloudEvent around an event that is none. It takes over the type and the time of the event.
func envelopeFor(d Content, i int, members map[string]json.RawMessage) envelope {
	e := envelope{data: d.Batch.Events[i], base64: !d.Batch.JSON, attributes: map[string]string{
		"specversion": event.CloudEventsVersionV1, "id": d.eventID(i),
		"source": d.PublicURL + uriPath(d.Delivery.Primary), "type": DefaultType, contentTypeAttribute: typeJSON,
	}}
	if e.base64 {
		e.attributes[contentTypeAttribute] = typeOctets
		if _, _, err := mime.ParseMediaType(d.Batch.ContentType); err == nil {
			e.attributes[contentTypeAttribute] = d.Batch.ContentType
		}
	}
	if d.Delivery.Primary != "" { // a test delivery has no stream
		e.attributes["subject"] = d.Delivery.Primary
	}
	if text, ok := attribute("type", members["type"]); ok && text == strings.TrimSpace(text) { // the SDK trims it
		e.attributes["type"] = text
	}
	if text, ok := attribute("time", members["time"]); ok {
		// In UTC, the time may be in a year that the text form does not have.
		if at, err := types.ParseTime(text); err == nil && at.UTC().Year() >= 0 && at.UTC().Year() <= 9999 {
			e.attributes["time"] = types.FormatTime(at)
		}
	}
	return e
}

// text returns the event in the JSON format of CloudEvents.
func (e envelope) text() ([]byte, error) {
	if e.asItStands != nil {
		return e.asItStands, nil
	}
	built, err := checked(e.attributes)
	if err != nil {
		return nil, err
	}
	built.DataEncoded, built.DataBase64 = e.data, e.base64
	return built.MarshalJSON()
}

// checked builds the SDK's event from attributes. The error names the wrong ones.
func checked(attributes map[string]string) (event.Event, error) {
	e := event.New(event.CloudEventsVersionV1)
	for name, text := range attributes {
		switch name {
		case "specversion":
			e.SetSpecVersion(text)
		case "id":
			e.SetID(text)
		case "source":
			e.SetSource(text)
		case "type":
			e.SetType(text)
		case "subject":
			e.SetSubject(text)
		case contentTypeAttribute:
			e.SetDataContentType(text)
		case "dataschema":
			e.SetDataSchema(text)
		case "time":
			at, err := types.ParseTime(text)
			if err != nil {
				return e, fmt.Errorf("time: %w", err)
			}
			e.SetTime(at)
		default:
			e.SetExtension(name, text)
		}
	}
	return e, e.Validate()
}

// readEnvelope returns the event of a stream if it is a CloudEvent of version 1.0. It takes the members of the event's
// JSON.
func readEnvelope(members map[string]json.RawMessage) (e envelope, ok bool) {
	if version, _ := attribute("specversion", members["specversion"]); version != event.CloudEventsVersionV1 {
		return e, false
	}
	e.attributes = map[string]string{}
	for name, value := range members {
		if name == dataMember || name == base64Member || isNull(value) {
			continue
		}
		if e.attributes[name], ok = attribute(name, value); !ok {
			return e, false
		}
	}
	if _, err := checked(e.attributes); err != nil {
		return e, false
	}
	return e, e.readData(members)
}

// readData reads the data (JSON format 3.1.2). Without a content type, JSON gets application/json, and bytes get
// application/octet-stream. A request with a body has a content type (CloudEvents webhook spec 2.1).
func (e *envelope) readData(members map[string]json.RawMessage) bool {
	data, found := members[dataMember]
	encoded, binary := members[base64Member]
	kind := e.attributes[contentTypeAttribute]
	switch {
	case found && binary:
		return false
	case binary:
		e.attributes[contentTypeAttribute] = cmp.Or(kind, typeOctets)
		return isText(encoded) && json.Unmarshal(encoded, &e.data) == nil
	case !found:
		return true
	case meansJSON(cmp.Or(kind, typeJSON)):
		e.attributes[contentTypeAttribute] = cmp.Or(kind, typeJSON)
		e.data = data
		return true
	}
	var text string
	if !isText(data) || json.Unmarshal(data, &text) != nil {
		return false
	}
	e.data = []byte(text)
	return true
}

// meansJSON says whether the datacontenttype of an event means JSON (CloudEvents, JSON format 3.1.1).
func meansJSON(contentType string) bool {
	kind, _, _ := mime.ParseMediaType(contentType)
	return strings.HasSuffix(kind, "/json") || strings.HasSuffix(kind, "+json")
}

// attribute returns the value of an attribute in its canonical string representation. It returns false for a name or a
// value that an attribute cannot have (CloudEvents, Naming Conventions and Type System; JSON format 2.2).
func attribute(name string, value json.RawMessage) (text string, ok bool) {
	switch ofSpec := slices.Contains(attributesOfSpec, name); {
	case !isAttributeName(name) || len(value) == 0:
		return "", false
	case isText(value):
		err := json.Unmarshal(value, &text)
		return text, err == nil && (text != "" || !ofSpec) && !strings.ContainsFunc(text, isForbidden)
	case ofSpec:
		return "", false
	case string(value) == "true", string(value) == "false":
		return string(value), true
	}
	n, err := strconv.ParseInt(string(value), 10, 32)
	return strconv.FormatInt(n, 10), err == nil
}

func isNull(value json.RawMessage) bool { return string(value) == "null" }

func isText(value json.RawMessage) bool { return len(value) > 0 && value[0] == '"' }

func isAttributeName(name string) bool {
	return name != "" && strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789") == ""
}

// isForbidden says whether no text of an attribute may have a character.
func isForbidden(r rune) bool { return unicode.In(r, unicode.Cc, unicode.Noncharacter_Code_Point) }

// uriPath percent-encodes characters that a stream's path may have and a URI's path may not (RFC 3986, Path).
func uriPath(path string) string {
	var b strings.Builder
	for i := range len(path) {
		c := path[i]
		stray := false
		if c == '%' {
			_, err := url.PathUnescape(path[i:min(i+3, len(path))])
			stray = err != nil
		}
		if stray || strings.IndexByte("[]^|", c) >= 0 {
			fmt.Fprintf(&b, "%%%02X", c)
		} else {
			b.WriteByte(c)
		}
	}
	return b.String()
}
