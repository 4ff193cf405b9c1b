// Package browser looks at the page for operators in a real browser. It is a module of its own, so that what drives the
// browser is no dependency of the program.
package browser
