// Package harness starts the real processes that end-to-end tests need (redis-server, the Durable Streams reference
// server, Reveille itself), a worker that records and answers wakes, and gives tests a client for the three HTTP APIs.
//
// Everything that a test starts ends with the test. Every process is also ended when the test binary dies, however it
// dies, so no run leaves one behind. What the processes wrote is shown when the test fails.
package harness
