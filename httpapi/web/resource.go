// Package web is what the faces of Reveille share of HTTP: resources, bodies of requests, and answers.
package web

import (
	"net/http"
	"strings"

	"github.com/labstack/echo/v4"

	"reveille/fsm"
	"reveille/httpapi/refusal"
)

// Resource is one of Reveille's own resources: where it is, what it answers, and to whom.
type Resource struct {
	// Route is the path on the operator port, in echo's notation. A resource of the API port has none.
	Route string
	// Query and Path say which requests on the API port are for it: with this key in the query, and with such a raw
	// path. Either may be unset. The first resource of the table that matches answers.
	Query string
	Path  func(raw string) bool
	// Role is who may use it (see Needs). On the operator port, unguarded resources answer web pages too, and at any
	// host.
	Role      fsm.Role
	Unguarded bool
	// Whole is true if the resource is about the whole program. It is for principals that see all streams.
	Whole   bool
	Methods Methods
	// Usage is the answer to other methods.
	Usage string
}

// The roles of clients. A resource without a role is refused to all.
const (
	// Anyone is the role that every client has.
	Anyone fsm.Role = "anyone"
	// RoleRead may see what the operator port shows, and RoleOperate may also change it.
	RoleRead    fsm.Role = "read"
	RoleOperate fsm.Role = "operate"
)

// Exactly is the Path of a resource at one path.
func Exactly(path string) func(raw string) bool { return func(raw string) bool { return raw == path } }

// Nothing answers requests for a path at which there is nothing.
func Nothing(echo.Context) error {
	return refusal.New(fsm.CodeNotFound, "there is nothing at this path")
}

// Method is one method of a resource.
type Method struct {
	Name   string
	Handle echo.HandlerFunc
}

// Methods are in the order in which Allow names them.
type Methods []Method

// Every is the name of a method that stands for all of them, OPTIONS included.
const Every = "*"

// Get is the method GET alone.
func Get(h echo.HandlerFunc) Methods { return Methods{{http.MethodGet, h}} }

// Post is the method POST alone.
func Post(h echo.HandlerFunc) Methods { return Methods{{http.MethodPost, h}} }

// Read is GET and HEAD.
func Read(h echo.HandlerFunc) Methods { return Get(h).And(http.MethodHead, h) }

// All is every method.
func All(h echo.HandlerFunc) Methods { return Methods{{Every, h}} }

// And adds a method.
func (m Methods) And(name string, h echo.HandlerFunc) Methods { return append(m, Method{name, h}) }

// Needs is the role that a method of the resource needs: what changes something is not for those who only read.
func (res Resource) Needs(method string) fsm.Role {
	if res.Role == RoleRead && method != http.MethodGet && method != http.MethodHead {
		return RoleOperate
	}
	return res.Role
}

// Allow is the value of the header Allow.
func (res Resource) Allow() string {
	names := make([]string, 0, len(res.Methods))
	for _, m := range res.Methods {
		names = append(names, m.Name)
	}
	return strings.Join(names, ", ")
}
