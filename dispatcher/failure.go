package dispatcher

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"strings"
	"syscall"

	"reveille/dispatcher/format"
	"reveille/fsm"
)

// judgeError returns the verdict on an attempt that got no status. It names the kind of the error without its text.
func judgeError(err error) format.Verdict {
	class, reason := classify(err)
	return format.Verdict{Result: fsm.AttemptFailed, Class: class, Reason: reason}
}

func classify(err error) (class format.Class, reason string) {
	var (
		proxy   *proxyError
		op      *net.OpError
		dns     *net.DNSError
		cert    *tls.CertificateVerificationError
		alert   tls.AlertError
		record  tls.RecordHeaderError
		errno   syscall.Errno
		timeout net.Error
	)
	switch {
	case errors.As(err, &dns) && outOfFiles(dns):
		return format.ClassFiles, syscall.EMFILE.Error()
	case errors.As(err, &errno) && classOfErrno(errno) == format.ClassFiles:
		return format.ClassFiles, errno.Error()
	case errors.As(err, &proxy):
		return format.ClassProxy, proxy.Error()
	case errors.As(err, &op) && op.Op == "proxyconnect": // of net/http
		return format.ClassProxy, "the proxy cannot be reached"
	case errors.Is(err, errProhibited):
		return format.ClassProhibited, "the host leads to a prohibited address"
	case errors.Is(err, errTarget):
		return format.ClassProhibited, "the webhook URL is not allowed any more"
	case errors.Is(err, context.DeadlineExceeded):
		return format.ClassTimeout, fsm.ReasonTimeout
	case errors.As(err, &dns):
		return format.ClassDNS, "the host name does not resolve"
	case errors.As(err, &cert):
		return format.ClassTLS, "the TLS certificate is not valid"
	case errors.As(err, &alert), errors.As(err, &record):
		return format.ClassTLS, "the TLS handshake failed"
	case errors.As(err, &errno):
		return classOfErrno(errno), errno.Error()
	case errors.As(err, &timeout) && timeout.Timeout():
		return format.ClassTimeout, "the connection timed out"
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return format.ClassConnection, "the connection was closed without an answer"
	}
	return format.ClassOther, "the request failed"
}

func classOfErrno(errno syscall.Errno) format.Class {
	switch {
	case errno == syscall.EMFILE, errno == syscall.ENFILE:
		return format.ClassFiles
	case errno.Timeout():
		return format.ClassTimeout
	}
	return format.ClassConnection
}

// outOfFiles says whether a name was not looked up for want of files. The resolver keeps nothing of its error but the
// text.
func outOfFiles(err *net.DNSError) bool {
	return strings.HasSuffix(err.Err, syscall.EMFILE.Error()) || strings.HasSuffix(err.Err, syscall.ENFILE.Error())
}
