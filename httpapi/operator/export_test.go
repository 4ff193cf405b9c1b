package operator

// For the tests.
const (
	PprofPrefix = pprofPrefix
	ScanBatch   = scanBatch
)
