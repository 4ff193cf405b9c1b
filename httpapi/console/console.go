// Package console is the face of the operator port for browsers: what the port answers, as pages.
package console

import (
	"bytes"
	"context"
	"embed"
	"html/template"
	"net"
	"net/http"
	"net/url"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/labstack/echo/v4"

	"reveille/fsm"
	"reveille/httpapi/control"
	"reveille/httpapi/operator"
	"reveille/httpapi/paging"
	"reveille/httpapi/refusal"
	"reveille/httpapi/web"
)

//go:embed assets/icon.svg assets/style.css assets/page.js assets/htmx.min.js
var assets embed.FS

//go:embed templates/*.html
var sources embed.FS

const (
	// refreshEvery is how often a page asks for itself again. A page that takes long asks less often: it is read for a
	// tenth of the time at most.
	refreshEvery = 5 * time.Second
	readShare    = 10
	// pageLength is how many lines a list has, and mostLooked how many it looks at that leaves out most of them.
	pageLength, mostLooked = "50", "1000"
)

// policy allows a page nothing but what this program sends.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; " +
	"form-action 'self'; base-uri 'none'; frame-ancestors 'none'"

// Face answers browsers. Operator and Refusal are required.
type Face struct {
	Operator *operator.Face
	// Refusal is what a client is told of an error.
	Refusal func(error) *refusal.Error
	// Anywhere is true if browsers at all addresses are answered, because the port asks them for a token.
	Anywhere bool
}

// view is a kind of page.
type view struct {
	route string
	// menu is the entry of the menu that the page belongs to.
	menu string
	// template is the file that shows what read returns.
	template string
	// filters are the keys of the query that narrow a list down.
	filters []filter
	read    func(ctx context.Context, c echo.Context, p *page) error
	// whole is as in web.Resource.
	whole bool
	// still is true if the page does not refresh itself, because it may cost much.
	still bool
}

// entry is one of the menu.
type entry struct{ Route, Title string }

// filter is a field of the form above a list.
type filter struct {
	Key, Label, Hint string
	// Choices are the values; without any, it is a text.
	Choices []string
	Value   string
}

// page is what a template shows.
type page struct {
	Title, Menu string
	Menus       []entry
	// Path and Query are where the page is.
	Path  string
	Query url.Values
	// Still is true if the page does not refresh itself, Stopped if that was asked for. Every is how often it does
	// otherwise, in seconds.
	Still, Stopped bool
	Every          int
	// Filters are those of a list, and Next is the cursor of its next page.
	Filters []filter
	Next    string
	AsOf    time.Time
	Problem string
	Version string
	Log     fsm.DeliveryLog
	// Back is the page that a form was sent from; empty for a page that is no answer to a form.
	Back string
	// Delivery is true if the page is about one delivery.
	Delivery bool
	// ReadOnly is true for those who may only look. CSRF is the token that the forms of others send along.
	ReadOnly bool
	CSRF     string
	// Body is what the view has read.
	Body any
}

// Resources are the pages, and what they are made of.
func (f *Face) Resources() []web.Resource {
	table := []web.Resource{{Route: "/assets/:name", Role: web.RoleRead, Methods: web.Get(f.asset)}}
	var menu []entry
	for _, v := range f.views() {
		if v.menu != "" && !slices.ContainsFunc(menu, func(e entry) bool { return e.Title == v.menu }) {
			menu = append(menu, entry{v.route, v.menu})
		}
	}
	for _, v := range f.views() {
		shown := parsed(v.template)
		table = append(table, web.Resource{Route: v.route, Role: web.RoleRead, Whole: v.whole, Methods: web.Get(
			func(c echo.Context) error { return f.show(c, v, menu, shown) },
		)})
	}
	for _, a := range f.actions() {
		table = append(table, f.resource(a, menu))
	}
	return table
}

func (f *Face) show(c echo.Context, v view, menu []entry, shown *template.Template) error {
	ctx, cancel := context.WithTimeout(c.Request().Context(), paging.Timeout)
	defer cancel()
	p, began := f.page(c, v, menu), time.Now()
	err := f.onlyHere(c.Request())
	if err == nil {
		err = guarded(func(c echo.Context) error { return v.read(ctx, c, p) })(c)
	}
	if !p.ReadOnly {
		p.CSRF = tokenOf(c)
	}
	p.Every = int(max(refreshEvery, readShare*time.Since(began)).Seconds())
	return f.write(c, p, shown, err)
}

// page returns a page that nothing was read for yet.
func (f *Face) page(c echo.Context, v view, menu []entry) *page {
	p := &page{
		Title: v.menu, Menu: v.menu, Menus: menu, Path: web.RawPath(c.Request()), Query: c.QueryParams(),
		ReadOnly: !control.Has(c.Request().Context(), web.RoleOperate),
		AsOf:     f.Operator.Control.Clock().UTC(), Version: f.Operator.Version, Log: f.Operator.DeliveryLog,
	}
	p.Stopped = p.Query.Get("refresh") == "off"
	p.Still = p.Stopped || v.still
	for _, field := range v.filters {
		field.Value = p.Query.Get(field.Key)
		p.Filters = append(p.Filters, field)
	}
	return p
}

// write answers with a page, or with what is wrong.
func (f *Face) write(c echo.Context, p *page, shown *template.Template, err error) error {
	status := http.StatusOK
	if err != nil {
		refused := f.Refusal(err)
		web.MarkRefused(c.Response(), refused.Code)
		status, p.Problem, p.Body = web.Status(refused.Code), refused.Message, nil
		p.Still = p.Still || status < http.StatusInternalServerError
	}
	var text bytes.Buffer
	if err := shown.ExecuteTemplate(&text, "layout", p); err != nil {
		return err
	}
	header := c.Response().Header()
	header.Set("Content-Security-Policy", policy)
	header.Set("Cache-Control", "no-store")
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("Referrer-Policy", "same-origin")
	return c.HTMLBlob(status, text.Bytes())
}

// replaced returns a route with an ID in it.
func replaced(route, id string) string { return strings.Replace(route, ":id", url.PathEscape(id), 1) }

// onlyHere refuses a request that has not come to a loopback address, unless the port asks for a token.
func (f *Face) onlyHere(r *http.Request) error {
	if f.Anywhere {
		return nil
	}
	// What a proxy on this machine passes on may come from anywhere.
	passedOn := slices.ContainsFunc([]string{"Forwarded", "X-Forwarded-For", "Via"}, func(name string) bool {
		return r.Header.Get(name) != ""
	})
	at, _ := r.Context().Value(http.LocalAddrContextKey).(*net.TCPAddr)
	if at != nil && at.IP.IsLoopback() && !passedOn {
		return nil
	}
	return refusal.New(fsm.CodeForbidden, "this page is served at a loopback address alone, as it asks for no "+
		"password: set REVEILLE_ADMIN_TOKEN, or forward a port to it (kubectl port-forward, ssh -L, or docker run "+
		"--network host), and open http://localhost and that port")
}

// listed makes the page of a list, with the filters of the view.
func listed[T any](
	f *Face, read func(context.Context, url.Values, paging.Page) (T, error), next func(T) string,
) func(context.Context, echo.Context, *page) error {
	return func(ctx context.Context, _ echo.Context, p *page) error {
		query := url.Values{"limit": {pageLength}}
		for key, values := range p.Query {
			if key != "refresh" && len(values) > 0 && values[0] != "" { // a form also sends the empty fields
				query[key] = values
			}
		}
		if query.Get("failing") == "true" {
			query.Set("limit", mostLooked)
		}
		known := make([]string, len(p.Filters))
		for i, field := range p.Filters {
			known[i] = field.Key
		}
		at, err := paging.Read(query, f.Operator.Control.View.Partitions(), known...)
		if err != nil {
			return err
		}
		body, err := read(ctx, query, at)
		p.Body, p.Next = body, next(body)
		return err
	}
}

// With returns the address of this page with another value in its query, or without the key if the value is empty. A
// list then begins again.
func (p *page) With(key, value string) string {
	query := url.Values{}
	for k, values := range p.Query {
		if k != "cursor" && k != key && len(values) > 0 && values[0] != "" {
			query[k] = values
		}
	}
	if value != "" {
		query.Set(key, value)
	}
	if len(query) == 0 {
		return p.Path
	}
	return p.Path + "?" + query.Encode()
}

// Here is the address of the page.
func (p *page) Here() string { return p.With("cursor", p.Query.Get("cursor")) }

// asset answers with a file that the pages use.
func (f *Face) asset(c echo.Context) error {
	name := c.Param("name")
	text, err := assets.ReadFile("assets/" + name)
	if err != nil || strings.Contains(name, "/") {
		return echo.ErrNotFound
	}
	kind := map[string]string{
		".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".svg": "image/svg+xml",
	}[path.Ext(name)]
	c.Response().Header().Set("X-Content-Type-Options", "nosniff")
	c.Response().Header().Set("Cache-Control", "no-cache") // another version may have another one
	return c.Blob(http.StatusOK, kind, text)
}
