package dispatcher

import (
	"bytes"
	"compress/flate"
	"compress/gzip"
	"compress/zlib"
	"io"
	"net/http"
	"strings"
	"testing"

	"reveille/fsm"
)

func zipped(text string) []byte {
	return compressed(text, func(w io.Writer) io.WriteCloser { return gzip.NewWriter(w) })
}

func compressed(text string, writer func(io.Writer) io.WriteCloser) []byte {
	var b bytes.Buffer
	w := writer(&b)
	_, _ = io.WriteString(w, text)
	_ = w.Close()
	return b.Bytes()
}

func TestAnswersAreReadWhateverTheirCoding(t *testing.T) {
	const done = `{"done":true}`
	bare := compressed(done, func(w io.Writer) io.WriteCloser {
		f, _ := flate.NewWriter(w, flate.BestSpeed)
		return f
	})
	wrapped := compressed(done, func(w io.Writer) io.WriteCloser { return zlib.NewWriter(w) })
	for name, tt := range map[string]struct {
		codings []string
		body    []byte
		want    string
	}{
		"none":                       {nil, []byte(done), done},
		"identity":                   {[]string{"identity"}, []byte(done), done},
		"gzip":                       {[]string{"gzip"}, zipped(done), done},
		"its old name, in capitals":  {[]string{"X-GZIP"}, zipped(done), done},
		"gzip in two members":        {[]string{"gzip"}, append(zipped(done[:5]), zipped(done[5:])...), done},
		"deflate":                    {[]string{"deflate"}, wrapped, done},
		"deflate without its header": {[]string{"deflate"}, bare, done},
		"two in one line":            {[]string{"deflate, gzip"}, zipped(string(wrapped)), done},
		"two in two lines":           {[]string{"deflate", "gzip"}, zipped(string(wrapped)), done},
		"three":                      {[]string{"gzip, gzip, gzip"}, zipped(string(zipped(string(zipped(done))))), ""},
		"one that is not known":      {[]string{"br"}, []byte(done), ""},
		"one that is not there":      {[]string{"gzip"}, []byte(done), ""},
		"nothing at all":             {[]string{"gzip"}, nil, ""},
		"one that is cut":            {[]string{"gzip"}, zipped(done)[:20], ""},
		"one with a wrong checksum": {
			[]string{"gzip"}, append(zipped(done)[:len(zipped(done))-8], make([]byte, 8)...), "",
		},
		"few bytes for many": {[]string{"gzip"}, zipped(done + strings.Repeat(" ", 1<<20)), ""},
		"many bytes for few": {[]string{"gzip"}, bytes.Repeat(zipped(""), maxAnswer), ""},
	} {
		t.Run(name, func(t *testing.T) {
			answer := func() *http.Response {
				return &http.Response{
					Header: http.Header{"Content-Encoding": tt.codings}, Body: io.NopCloser(bytes.NewReader(tt.body)),
				}
			}
			if got := readAnswer(answer()); string(got) != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
			if got := drain(answer(), func() {}); tt.want != "" && got != tt.want || len(got) > fsm.MaxLetterAnswer {
				t.Errorf("an answer that decides nothing is shown as %.99q", got)
			}
		})
	}
}

func TestARequestGoesToTheURLAsItsWebhookWasWritten(t *testing.T) {
	for webhook, want := range map[string]string{
		"https://w.example":                      "https://w.example",
		"https://w.example?é":                    "https://w.example?%C3%A9",
		"https://w.example/ü/%2F/%c3%bc?ü=ö&%zz": "https://w.example/%C3%BC/%2F/%c3%bc?%C3%BC=%C3%B6&%zz",
		"https://w.example/a b?c d":              "https://w.example/a%20b?c%20d",
		"https://bücher.example/a?b":             "https://bücher.example/a?b",
		"https://w.example/a?u=https://ö/":       "https://w.example/a?u=https://%C3%B6/",
	} {
		if got := requestURL(webhook); got != want {
			t.Errorf("%s: got %s, want %s", webhook, got, want)
		}
	}
	got := make(chan string, 1)
	hook := endpoint(t, func(_ http.ResponseWriter, r *http.Request) { got <- r.RequestURI })
	f := start(t, newMemStore(), nil)
	f.Deliver(f.store.event(f.store.addSubscription("s", hook+"/ü/%2F?ä=ö"), "/s/1", "0005"))
	if uri := <-got; uri != "/%C3%BC/%2F?%C3%A4=%C3%B6" {
		t.Errorf("the endpoint got %s", uri)
	}
}
