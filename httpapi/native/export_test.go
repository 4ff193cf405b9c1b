package native

// LookLimit is the bound, for the tests.
const LookLimit = lookLimit
