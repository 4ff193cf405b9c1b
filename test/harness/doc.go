// Package harness starts the real processes that end-to-end tests need: redis-server, the Durable Streams reference
// server, Reveille itself. It has a worker that records and answers wakes, and a client for the three HTTP APIs.
//
// Everything that a test starts ends with the test. Every process also ends when the test binary dies, however it dies,
// so no run leaves one behind. If the test fails, it keeps what the processes wrote in files and names them.
package harness
