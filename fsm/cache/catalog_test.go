package cache

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"reveille/fsm"
)

// TestCatalogFindsWhatThePatternsMatch holds the index against the patterns one by one.
func TestCatalogFindsWhatThePatternsMatch(t *testing.T) {
	segment := rapid.SampledFrom([]string{"a", "b", "c", "*", "**"})
	rapid.Check(t, func(t *rapid.T) {
		catalog := NewCatalog()
		var subs []fsm.Subscription
		for i := range rapid.IntRange(0, 8).Draw(t, "subscriptions") {
			pattern := "/" + strings.Join(rapid.SliceOfN(segment, 1, 6).Draw(t, "pattern"), "/")
			subs = append(subs, fsm.Subscription{ID: fmt.Sprint(i), Pattern: pattern})
		}
		catalog.Replace(subs, 1)
		path := "/" +
			strings.Join(rapid.SliceOfN(rapid.SampledFrom([]string{"a", "b", "c", ""}), 0, 7).Draw(t, "path"), "/")
		var want, got []string
		for _, s := range subs {
			if p, err := fsm.ParsePattern(s.Pattern); err == nil && p.Matches(path) {
				want = append(want, s.ID)
			}
		}
		for _, s := range catalog.Match(path) {
			got = append(got, s.ID)
		}
		if !slices.Equal(got, want) {
			t.Fatalf("%s: the index finds %v, the patterns %v of %+v", path, got, want, subs)
		}
	})
}

// TestAChangedCatalogIsAsIfItWereReadWhole drives one catalog by its changes and holds it against
// others that are made anew.
func TestAChangedCatalogIsAsIfItWereReadWhole(t *testing.T) {
	id := rapid.SampledFrom([]string{"1", "2", "3", "4", "5"})
	segment := rapid.SampledFrom([]string{"a", "b", "*", "**"})
	rapid.Check(t, func(t *rapid.T) {
		c := NewCatalog()
		c.Replace(nil, 0)
		subs := map[string]fsm.Subscription{}
		for version := range rapid.Int64Range(1, 12).Draw(t, "versions") {
			gone := rapid.SliceOfN(id, 0, 2).Draw(t, "gone")
			for _, id := range gone {
				delete(subs, id)
			}
			var made []fsm.Subscription
			for _, id := range rapid.SliceOfNDistinct(id, 0, 3, rapid.ID[string]).Draw(t, "made") {
				pattern := "/" + strings.Join(rapid.SliceOfN(segment, 1, 4).Draw(t, "pattern"), "/")
				sub := fsm.Subscription{ID: id, Pattern: pattern, Generation: fmt.Sprint(version)}
				subs[id] = sub
				made = append(made, sub)
			}
			changed := c.Changed()
			c.Change(made, gone, version)
			select {
			case <-changed:
			default:
				t.Fatal("a change was not announced")
			}
			if rapid.Bool().Draw(t, "look later") {
				continue
			}
			whole := NewCatalog()
			whole.Replace(slices.Collect(maps.Values(subs)), version)
			if !slices.EqualFunc(c.All(), whole.All(), fsm.Subscription.Equal) || c.Version() != whole.Version() {
				t.Fatalf("it holds %+v of version %d, not %+v of %d", c.All(), c.Version(), whole.All(),
					whole.Version())
			}
			for _, path := range []string{"/a", "/b", "/a/a", "/a/b", "/b/a", "/b/b", "/a/b/a", "/b/b/b/b"} {
				if !slices.EqualFunc(c.Match(path), whole.Match(path), fsm.Subscription.Equal) {
					t.Fatalf("%s: it finds %+v, not %+v", path, c.Match(path), whole.Match(path))
				}
			}
			if !reflect.DeepEqual(shape(&c.root), shape(&whole.root)) {
				t.Fatalf("its index is %v, not %v", shape(&c.root), shape(&whole.root))
			}
		}
	})
}

// shape is the nodes of an index.
func shape(n *node) map[string]any {
	if n == nil {
		return nil
	}
	s := map[string]any{" entries": len(n.here)}
	for name, child := range n.literal {
		s[name] = shape(child)
	}
	s["*"], s["**"] = shape(n.one), shape(n.many)
	return s
}

func TestCatalog(t *testing.T) {
	c := NewCatalog()
	if c.Loaded() || len(c.All()) != 0 {
		t.Fatal("a new catalog is loaded")
	}
	changed := c.Changed()
	c.Replace([]fsm.Subscription{{ID: "b", Pattern: "/x"}, {ID: "a", Pattern: "/**"}}, 5)
	select {
	case <-changed:
	default:
		t.Error("a change was not announced")
	}
	if all := c.All(); len(all) != 2 || all[0].ID != "a" {
		t.Errorf("all: %+v", all)
	}
	c.Replace([]fsm.Subscription{{ID: "b", Pattern: "/x"}}, 4)
	if _, ok := c.Get("a"); ok || c.Version() != 4 {
		t.Error("a store that lost its latest changes is not followed")
	}
}

// TestASubscriptionWhosePatternOnlyALaterVersionTakesCanBeSeenAndDeleted is for the way back from a later version.
func TestASubscriptionWhosePatternOnlyALaterVersionTakesCanBeSeenAndDeleted(t *testing.T) {
	c := NewCatalog()
	c.Replace([]fsm.Subscription{{ID: "later", Pattern: "/__ds/*"}, {ID: "ours", Pattern: "/**"}}, 1)
	if _, ok := c.Get("later"); !ok || len(c.All()) != 2 || len(c.Match("/__ds/x")) != 1 || len(c.Match("/")) != 1 {
		t.Errorf("it cannot be seen, or matches: %+v", c.All())
	}
	c.Change(nil, []string{"later"}, 2)
	if len(c.All()) != 1 {
		t.Error("it cannot be deleted")
	}
}

// TestMatchIsNotCubic holds that no pattern that a client can make up keeps the others' streams waiting: each of its
// nodes is looked at once for each rest of the path.
func TestMatchIsNotCubic(t *testing.T) {
	const segments = 1023
	path, ok := fsm.PathSegments(strings.Repeat("/a", segments))
	if !ok {
		t.Fatal("not a path")
	}
	for pattern, want := range map[string]int{strings.Repeat("/**", 680): 1, strings.Repeat("/**/a", 400) + "/b": 0} {
		c := NewCatalog()
		c.Replace([]fsm.Subscription{{ID: "x", Pattern: pattern}}, 1)
		m := matching{found: map[*entry]struct{}{}}
		m.walk(&c.root, path)
		if len(m.found) != want {
			t.Errorf("%.20s… matches %d times", pattern, len(m.found))
		}
		if most := strings.Count(pattern, "/") * (segments + 1); m.steps > 2*most {
			t.Errorf("%.20s… took %d steps, want at most two for each of %d nodes and rests", pattern, m.steps, most)
		}
	}
}

func TestTheCatalogMatchesAStreamHoweverItsPatternIsSpelled(t *testing.T) {
	for _, pattern := range []string{"/e/%7Ebob/*", "/%65/~bob/%2a", "/e/%7ebob/**"} {
		c := NewCatalog()
		c.Replace([]fsm.Subscription{{ID: "s", Pattern: pattern}}, 1)
		for _, path := range []string{"/e/~bob/x", "/e/~bob/%C3%BC"} {
			if len(c.Match(path)) != 1 {
				t.Errorf("%s does not match %s", pattern, path)
			}
		}
	}
}

// TestTheStreamsOfAnOutboxAreForItsTargetAlone holds it for a replica with the setting, and for one without.
func TestTheStreamsOfAnOutboxAreForItsTargetAlone(t *testing.T) {
	all := fsm.Subscription{ID: "all", Pattern: "/**"}
	target := fsm.Subscription{ID: "outbox.1", Pattern: "/outbox/1/*", Format: fsm.FormatOutbox}
	for _, kept := range []bool{false, true} {
		c := NewCatalog()
		if kept {
			c.KeepForOutbox("/outbox")
		}
		wants := func(when, path, want string, isFor bool) {
			t.Helper()
			ids := ""
			for _, s := range c.Match(path) {
				ids += s.ID
			}
			if ids != want || c.IsForOutbox(path) != isFor {
				t.Errorf("%s (kept: %t), %s is for %q; for the outbox: %t", when, kept, path, ids, c.IsForOutbox(path))
			}
		}
		c.Replace([]fsm.Subscription{all, target}, 1)
		wants("with both", "/outbox/1/3", "outbox.1", true)
		wants("with both", "/a", "all", false)
		c.Change(nil, []string{"outbox.1"}, 2)
		if kept {
			wants("without the target", "/outbox/1/3", "", true)
		} else {
			wants("without the target", "/outbox/1/3", "all", false)
		}
		c.Change([]fsm.Subscription{target}, nil, 3)
		wants("with the target again", "/outbox/1/3", "outbox.1", true)
	}
}
