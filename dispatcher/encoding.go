package dispatcher

import (
	"compress/flate"
	"compress/gzip"
	"compress/zlib"
	"fmt"
	"io"
	"net/http"
	"strings"
)

// maxCodings bounds how many codings of one answer are undone.
const maxCodings = 2

// decoded returns the body of an answer without its content codings (RFC 9110, section 8.4). Requests ask for none, but
// some servers and proxies compress all the same. An unknown coding makes the body unreadable. The caller must bound
// what it reads: a few bytes may stand for many.
func decoded(header http.Header, body io.Reader) io.Reader {
	var codings []string
	for coding := range strings.SplitSeq(strings.Join(header.Values("Content-Encoding"), ","), ",") {
		if coding = strings.ToLower(strings.TrimSpace(coding)); coding != "" && coding != "identity" {
			codings = append(codings, coding)
		}
	}
	if len(codings) > maxCodings {
		return unreadable{fmt.Errorf("more than %d content codings", maxCodings)}
	}
	for i := len(codings) - 1; i >= 0; i-- { // the last one was applied last
		if body = undone(codings[i], body); body == nil {
			return unreadable{fmt.Errorf("the content coding %.20q is not known", codings[i])}
		}
	}
	return body
}

// undone returns a body without one coding, or nil if the coding is unknown.
func undone(coding string, body io.Reader) io.Reader {
	switch coding {
	case "gzip", "x-gzip":
		return &lateReader{body: body, open: func(r io.Reader) (io.Reader, error) { return gzip.NewReader(r) }}
	case "deflate":
		return &lateReader{body: body, open: inflated}
	}
	return nil
}

// inflated reads the coding "deflate". It is the format of zlib, but some servers send the bare compressed data.
func inflated(body io.Reader) (io.Reader, error) {
	var begins [2]byte
	n, err := io.ReadFull(body, begins[:])
	if err != nil && n == 0 {
		return nil, err
	}
	body = io.MultiReader(strings.NewReader(string(begins[:n])), body)
	// The header of zlib (RFC 1950): the method is 8, and the two bytes are a multiple of 31.
	if n == len(begins) && begins[0]&0x0f == 8 && (int(begins[0])<<8|int(begins[1]))%31 == 0 {
		return zlib.NewReader(body)
	}
	return flate.NewReader(body), nil
}

// lateReader opens its reader at the first Read: opening reads bytes that may not have come yet.
type lateReader struct {
	body io.Reader
	open func(io.Reader) (io.Reader, error)
	in   io.Reader
	err  error
}

func (l *lateReader) Read(p []byte) (int, error) {
	if l.in == nil && l.err == nil {
		l.in, l.err = l.open(l.body)
	}
	if l.err != nil {
		return 0, l.err
	}
	return l.in.Read(p)
}

// unreadable is a body that cannot be read.
type unreadable struct{ err error }

func (u unreadable) Read([]byte) (int, error) { return 0, u.err }
