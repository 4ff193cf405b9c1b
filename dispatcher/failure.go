package dispatcher

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"reflect"
	"strings"
	"syscall"
	"time"

	"reveille/dispatcher/format"
	"reveille/fsm"
)

// judgeError returns the verdict on an attempt that got no status. It names the kind of the error, not its text.
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
		return format.ClassTLS, reasonOfCertificate(cert.Err)
	case errors.As(err, &op) && op.Op == "remote error": // of crypto/tls
		return format.ClassTLS, reasonOfAlert(op.Err)
	case errors.As(err, &record):
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

// reasonOfCertificate says what is wrong with the certificate of an endpoint. It repeats no text of the certificate.
func reasonOfCertificate(err error) string {
	var (
		name    x509.HostnameError
		issuer  x509.UnknownAuthorityError
		invalid x509.CertificateInvalidError
	)
	switch {
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired && invalid.Cert != nil:
		if time.Now().Before(invalid.Cert.NotBefore) {
			return "the TLS certificate is not valid yet"
		}
		return "the TLS certificate has expired"
	case errors.As(err, &name):
		return "the TLS certificate is not for this host name"
	case errors.As(err, &issuer):
		return "the TLS certificate is signed by an unknown authority"
	}
	return "the TLS certificate is not valid"
}

// alertCertificateRequired is the alert of an endpoint that wants a client certificate. TLS 1.2 has no such alert.
const alertCertificateRequired = 116

// reasonOfAlert says why an endpoint has ended TLS. crypto/tls does not export the type of its alerts; it has the same
// kind as tls.AlertError.
func reasonOfAlert(err error) string {
	if v := reflect.ValueOf(err); v.Kind() == reflect.Uint8 && v.Uint() == alertCertificateRequired {
		return "the endpoint asks for a client certificate, which Reveille does not have"
	}
	return "the TLS handshake failed"
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

// outOfFiles says whether a lookup failed for lack of open files. The resolver keeps only the text of its error.
func outOfFiles(err *net.DNSError) bool {
	return strings.HasSuffix(err.Err, syscall.EMFILE.Error()) || strings.HasSuffix(err.Err, syscall.ENFILE.Error())
}
