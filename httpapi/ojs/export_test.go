package ojs

// The bounds of a request, for the tests.
const (
	MaxLooks         = maxLooks
	MaxSubscriptions = maxSubscriptions
)
