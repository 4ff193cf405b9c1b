// Package upstream is the stream server as seen from outside. Client makes every request (target and request). Conn is
// the connection of live requests. The type dialect holds what differs between servers. Health knows whether the server
// as a whole is down. Limiter bounds how many requests the server gets at a time.
package upstream
