package main

import "go.uber.org/zap"

// otherFiles is a generous guess at the open files that no setting bounds: connections to Redis and to the operator
// port, HEAD requests, name look-ups.
const otherFiles = 1000

// streamsPerConn is the least number of requests at a time that a server should allow on an HTTP/2 connection (RFC
// 9113, 6.5.2).
const streamsPerConn = 100

// filesNeeded returns how many files a replica may have open at a time. A connection is one.
func filesNeeded(s settings) uint64 {
	live := s.TailMaxLive
	if s.UpstreamH2C { // over TLS, this is unknown until the stream server has answered
		live = live/streamsPerConn + 1
	}
	// Idle webhook connections are kept, as many as may be in use.
	n := live + s.MaxConnections + 2*s.MaxInFlight + otherFiles
	if s.Gateway { // each request through the gateway has a connection to the stream server
		n += s.MaxConnections
	}
	return uint64(n)
}

// warnOfFiles warns if the process may not open as many files as it may need. Go raises the soft limit to the
// hard one before that.
func warnOfFiles(s settings, log *zap.Logger) {
	limit, known := filesLimit()
	if need := filesNeeded(s); known && limit < need {
		log.Warn("the settings can require more open files than this process may have; without files connections "+
			"fail: raise the hard limit (ulimit -Hn, LimitNOFILE=), or lower REVEILLE_TAIL_MAX_LIVE and "+
			"REVEILLE_MAX_CONNECTIONS",
			zap.Uint64("limit", limit), zap.Uint64("may_need", need))
	}
}
