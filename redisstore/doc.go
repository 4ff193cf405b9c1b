// Package redisstore is the fsm.Store on Redis. Every transition is one Lua script (lua/*.lua, whose heads document
// their arguments, replies and cost), and one script changes one consumer or a bounded batch of them, so any replica
// may do anything at any time and a crash between two calls loses nothing.
//
// A consumer lives in the partition of its primary stream's path. All keys of a partition carry its hash tag, so the
// same scripts run on one Redis and on a Redis Cluster. A stream that consumers of several partitions are subscribed to
// has its tail noted in each.
//
// Accepted races: an outcome whose reply was lost on the way (a cut connection) has happened; its wakes are brought
// back by their deadlines.
package redisstore
