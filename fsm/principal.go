package fsm

import "slices"

// Principal is who asks. The zero value has no role and sees nothing.
type Principal struct {
	// Name is the Owner of the subscriptions that the principal makes; empty without keys.
	Name  string
	Roles []Role
	// Paths say which streams the principal sees.
	Paths []Pattern
}

// Role is what a principal may do. The zero value is no role, and no principal has it.
type Role string

// AllStreams is the pattern of every stream.
const AllStreams = "/**"

// Has says whether the principal has a role.
func (p Principal) Has(role Role) bool { return role != "" && slices.Contains(p.Roles, role) }

// SeesAll says whether nothing is hidden from the principal. That includes what no pattern matches.
func (p Principal) SeesAll() bool {
	return slices.ContainsFunc(p.Paths, func(q Pattern) bool { return q.text == AllStreams })
}

// Sees says whether the principal sees a stream.
func (p Principal) Sees(path string) bool {
	return p.SeesAll() || slices.ContainsFunc(p.Paths, func(q Pattern) bool { return q.Matches(path) })
}

// SeesPattern says whether one of the principal's patterns covers another pattern. A pattern that this version refuses
// is covered by none.
func (p Principal) SeesPattern(text string) bool {
	pattern, _ := ParsePattern(text)
	return p.SeesAll() || slices.ContainsFunc(p.Paths, func(q Pattern) bool { return q.Covers(pattern) })
}
