// Package crowd holds that an operator sees what there is, however much there is: no answer of the operator port, and
// no page, reads more than a bounded number of keys. It fills a real redis-server with subscriptions and consumers in
// all states, starts the built program, and asks for everything. It counts what Redis carries out, and prints times,
// which it holds to nothing.
//
// The short form has a little more than one answer looks at. CROWD=full (make crowd) has 10,000 subscriptions and
// 1,000,000 consumers: the same bounds hold.
package crowd

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"

	"reveille/httpapi/control"
	"reveille/httpapi/paging"
	"reveille/test/harness"
)

// partitions is how many the database has.
const partitions = 16

// The bounds. An answer counts so many consumers, each with one command, beside a page's subscriptions in each
// partition. What the program does by itself meanwhile is slack.
const (
	tallied     = 20_000
	perConsumer = 3 // of a list
	slack       = 5_000
	// counted is how many sets one answer counts, each with few commands, and scraped those of the metrics.
	counted = 4 * (1 << 16)
	scraped = 200_000
	// mostBytes bounds what Redis answers.
	mostBytes = 40 << 20
)

// ofPage is the bound of a page of subscriptions.
func ofPage(limit int) int { return tallied + 4*limit*partitions + slack }

func TestNothingAnOperatorSeesReadsWithoutBound(t *testing.T) {
	subscriptions, consumers := 1100, 80_000
	if os.Getenv("CROWD") == "full" {
		subscriptions, consumers = 10_000, 1_000_000
	}
	began := time.Now()
	c := fill(t, subscriptions, consumers)
	t.Logf("%d subscriptions and %d consumers, made in %s", subscriptions, consumers, time.Since(began))
	ref := harness.StartRefServer(t, harness.RefOptions{})
	r := harness.StartReveille(t, map[string]string{
		"REVEILLE_UPSTREAM_URL": ref.StreamRoot, "REVEILLE_REDIS_URL": c.redis.URL, "REVEILLE_LOG_LEVEL": "info",
		"REVEILLE_PARTITIONS": fmt.Sprint(partitions),
	})
	o := &operator{t: t, crowd: c, origin: r.Operator}
	o.settled()
	big, small := c.subs[0].ID, c.subs[subscriptions/2].ID
	one := "/api/v1/subscriptions/"

	// What is only partly counted says so; what has few consumers is counted, whoever else has many.
	is := o.ask(one+big, ofPage(1))
	if is["at_least"] != true || int(is["consumers"].(float64)) != c.consumers[0] {
		t.Errorf("the one with most consumers is %v", is)
	}
	if is := o.ask(one+small, ofPage(1)); is["at_least"] != nil || int(is["consumers"].(float64)) !=
		c.consumers[subscriptions/2] {
		t.Errorf("one with few consumers is %v", is)
	}
	if is := o.ask(one+big+"/stats", ofPage(1)); is["at_least"] != true {
		t.Errorf("its statistics are %v", is)
	}
	if is := o.ask("/api/v1/status", counted+tallied+slack); is["consumers_counted"] != false {
		t.Errorf("the status is %v", is)
	}
	stats := o.ask("/api/v1/stats", slack)
	waking, _ := stats["pending"].(float64)
	if want := consumers / 2 * 3 / 5; waking < float64(want) { // waking, live, failing and hidden ones
		t.Errorf("%v are pending, want %d or more", waking, want)
	}

	shown := map[string]bool{}
	for _, query := range []string{"limit=1000", "limit=1000&failing=true"} {
		unknown := 0
		for _, row := range o.pages("/api/v1/subscriptions?"+query, "subscriptions", ofPage(1000)) {
			shown[fmt.Sprint(query, row["subscription_id"])] = true
			if row["at_least"] == true {
				unknown++
			}
		}
		if unknown != 1 {
			t.Errorf("?%s: %d are counted in part", query, unknown)
		}
	}
	if want := 2 * subscriptions; len(shown) != want {
		t.Errorf("%d subscriptions are listed, want %d", len(shown), want)
	}
	attempts := map[string]bool{}
	for _, row := range o.pages("/api/v1/deliveries?limit=1000", "deliveries", 4*control.LogsAtATime+slack) {
		id := fmt.Sprint(row["delivery_id"])
		if attempts[id] {
			t.Errorf("%s is listed twice", id)
		}
		attempts[id] = true
	}
	if len(attempts) != 2*subscriptions {
		t.Errorf("%d attempts are listed, want %d", len(attempts), 2*subscriptions)
	}

	page := func(limit int) int { return perConsumer*paging.MaxCost + limit*perConsumer + slack }
	for path, most := range map[string]int{
		"/api/v1/subscriptions":     ofPage(100),
		one + small + "/deliveries": page(100), one + small + "/stats": ofPage(1),
		"/api/v1/deliveries?result=failed":                     4*control.LogsAtATime + slack,
		"/api/v1/deliveries?stream=/" + small + "/1":           page(100),
		"/api/v1/consumers":                                    page(100),
		"/api/v1/consumers?state=quarantined":                  page(100),
		"/api/v1/consumers?state=failing&limit=1000":           page(1000),
		"/api/v1/consumers?subscription=" + small:              page(100),
		"/api/v1/consumers/" + small + ":%2F" + small + "%2F1": slack,
		"/api/v1/streams":                                      page(100), "/api/v1/streams?watched=true": page(100),
		"/api/v1/dead-letters": page(100), "/api/v1/dead-letters?subscription=" + small: page(100),
		"/api/v1/replays": page(100), "/api/v1/replays?subscription=" + small: page(100),
		"/api/v1/replays?stream=/" + small + "/none": page(100),
		"/api/v1/audit":                       slack,
		"/api/v1/find?q=" + small:             slack,
		"/api/v1/find?q=evt_none":             page(100),
		"/api/v1/find?q=%2F" + small + "%2F1": page(100),
		"/metrics":                            scraped + slack,
		"/":                                   counted + tallied + slack,
		"/subscriptions":                      ofPage(50), "/subscriptions?failing=true": ofPage(1000),
		"/subscriptions/" + big: ofPage(1), "/subscriptions/" + small: ofPage(1),
		"/deliveries": 4*control.LogsAtATime + slack,
		"/consumers":  page(50), "/dead-letters": page(50), "/replays": page(50),
		"/audit": slack, "/find?q=evt_none": page(50),
	} {
		o.ask(path, most)
	}
	for path, says := range map[string]string{
		"/": "not all consumers are counted", "/subscriptions/" + big: "Only some of the consumers",
	} {
		if text := o.get(path); !strings.Contains(text, says) || strings.Contains(text, "all is well") {
			t.Errorf("%s does not say %q", path, says)
		}
	}
}

// operator asks the operator port.
type operator struct {
	t      *testing.T
	crowd  *crowd
	origin string
}

func (o *operator) get(path string) string {
	o.t.Helper()
	req, err := http.NewRequestWithContext(o.t.Context(), http.MethodGet, o.origin+path, nil)
	if err != nil {
		o.t.Fatal(err)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		o.t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	text, err := io.ReadAll(res.Body)
	if err != nil || res.StatusCode >= http.StatusInternalServerError || res.StatusCode == http.StatusBadRequest {
		o.t.Errorf("%s: %s, %v: %.200s", path, res.Status, err, text)
	}
	return string(text)
}

// settled waits until the program has done what it does at its start.
func (o *operator) settled() {
	o.t.Helper()
	before, _ := o.crowd.carriedOut(o.t)
	harness.Eventually(o.t, harness.Wait, "the program is at rest", func() error {
		now, _ := o.crowd.carriedOut(o.t)
		defer func() { before = now }()
		if now >= before+slack/10 || o.get("/readyz") == "" {
			return fmt.Errorf("it makes %d commands", now-before)
		}
		return nil
	})
}

// ask asks for something, which may take so many commands of Redis. What the program does by itself may come at the
// same time, so it asks once more before that is too many.
func (o *operator) ask(path string, most int) (body map[string]any) {
	o.t.Helper()
	var text string
	n, bytes := most+1, 0
	for tries := 0; tries < 2 && n > most; tries++ {
		before, bytesBefore := o.crowd.carriedOut(o.t)
		began := time.Now()
		text = o.get(path)
		took := time.Since(began)
		n, bytes = o.crowd.carriedOut(o.t)
		n, bytes = n-before, bytes-bytesBefore
		o.t.Logf("%8d commands of %8d  %8d KiB  %6d ms  %.100s", n, most, bytes>>10, took.Milliseconds(), path)
	}
	if n > most || bytes > mostBytes {
		o.t.Errorf("%s takes %d commands, want at most %d, and %d bytes of Redis, want at most %d",
			path, n, most, bytes, mostBytes)
	}
	_ = json.Unmarshal([]byte(text), &body) // pages are no JSON
	return body
}

// pages reads a list to its end.
func (o *operator) pages(path, key string, most int) (rows []map[string]any) {
	o.t.Helper()
	next := ""
	for n := 0; n == 0 || next != ""; n++ {
		body := o.ask(path+"&cursor="+url.QueryEscape(next), most)
		list, _ := body[key].([]any)
		for _, entry := range list {
			row, _ := entry.(map[string]any)
			rows = append(rows, row)
		}
		next, _ = body["next"].(string)
		if n > 1000 {
			o.t.Fatalf("%s has no end", path)
		}
	}
	return rows
}
