package fsm

import "time"

// EpochsPerMilli is the number of epochs that an incarnation sets aside for each millisecond until the next one begins.
// It is far more than the wakes that a consumer can have. At this rate the epochs stay below 2^53, the whole numbers
// that JSON and Lua keep exact, until the year 2248.
const EpochsPerMilli = 1024

// LeastEpochs is the least number of epochs that an incarnation sets aside: the clock of the next one may be behind.
const LeastEpochs = 1000 * EpochsPerMilli

// VersionsPerMilli is the number of versions that the list of subscriptions can have in one millisecond. A version is a
// time in milliseconds, times this number, plus a number that tells it from others of that time.
const VersionsPerMilli = 2048

// MaxClockSkew is the largest expected difference between the clocks of two servers. No stored fact shows the real one.
const MaxClockSkew = 30 * time.Second
