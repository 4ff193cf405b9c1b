package fsm

// EpochsPerMilli is the number of epochs that an incarnation sets aside for each millisecond until the next one begins.
// It is far more than the wakes that a consumer can have. At this rate the epochs stay below 2^53, the whole numbers
// that JSON and Lua keep exact, until the year 2248.
const EpochsPerMilli = 1024

// LeastEpochs is the least number of epochs that an incarnation sets aside: the clock of the next one may be behind.
const LeastEpochs = 1000 * EpochsPerMilli
