// Package upstream is the stream server as seen from outside: what is asked of it (Client, which makes every request in
// target and request), the connections that live requests go by (Conn), what differs between servers (dialect), whether
// the server as a whole is down (Health), and how many requests it can take at a time (Limiter).
package upstream
