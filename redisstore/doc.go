// Package redisstore is the store on Redis. Every transition is one Lua script (lua/*.lua). The head of each
// file documents arguments, replies and cost. One script changes one consumer or a bounded batch of consumers. So any
// replica may do anything at any time, and a crash between two calls loses nothing.
//
// A consumer lives in the partition of its primary stream's path. All keys of a partition carry its hash tag, so the
// same scripts run on one Redis and on a Redis Cluster. If consumers of several partitions are subscribed to a stream,
// each of these partitions notes its tail.
//
// Accepted races: a transition has happened even if its reply was lost on the way (a cut connection). The store repeats
// most such calls (unanswered.go). Otherwise, deadlines bring the wakes back.
package redisstore
