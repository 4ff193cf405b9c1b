// Package upstream is the stream server as seen from outside: requests by HTTP/1.1 and HTTP/2 (Client), the
// connections they go by (Conn), whether the server as a whole is down (Health), and how many requests it can take at
// a time (Limiter).
package upstream
