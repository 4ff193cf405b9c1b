package main

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"reveille/httpapi/operator"
)

// failedResults are the results of attempts that failed.
const failedResults = "failed,retired,dead"

func (c *cli) deliveries(ctx context.Context, args []string) error {
	if c.request != "" {
		return c.sentRequest(ctx, args)
	}
	if err := c.span(); err != nil {
		return err
	}
	list, more := "/api/v1/deliveries", "deliveries"
	if len(args) > 0 {
		list, more = subscriptionsPath+"/"+url.PathEscape(args[0])+"/deliveries", more+" "+shellWord(args[0])
	}
	path := c.list(list, [2]string{"stream", c.stream},
		[2]string{"result", when(c.failed, failedResults)}, [2]string{"status", c.code},
		[2]string{"class", c.class}, [2]string{"id", c.id},
		[2]string{"since", c.since}, [2]string{"until", c.until})
	if c.follow {
		return c.followDeliveries(ctx, path)
	}
	var body operator.DeliveriesBody
	if printed, err := c.ask(ctx, http.MethodGet, path, nil, &body); printed || err != nil {
		return err
	}
	if body.From != "" {
		if _, err := fmt.Fprintf(c.out, "Older attempts of the subscriptions %s to %s; those of others are on other "+
			"pages.\n\n", printable(body.From), printable(body.To)); err != nil {
			return err
		}
	}
	if !c.details || len(body.Deliveries) == 0 {
		return c.rows(attemptRows(body.Deliveries, len(args) == 0), more, body.Next)
	}
	for i, d := range body.Deliveries {
		if err := c.delivery(d, i == 0); err != nil {
			return err
		}
	}
	return c.more(more, body.Next)
}

// sentRequest shows the request of a delivery's latest attempt as HTTP text.
func (c *cli) sentRequest(ctx context.Context, args []string) error {
	switch {
	case len(args) != 1:
		return usageError{"deliveries: --request needs the subscription that the delivery is of"}
	case c.follow || c.failed || c.details || c.stream != "" || c.code != "" || c.class != "" || c.id != "" ||
		c.since != "" || c.until != "" || c.cursor != "":
		return usageError{"deliveries: --request takes no flag but --output and --addr"}
	}
	path := subscriptionsPath + "/" + url.PathEscape(args[0]) + "/deliveries/" + url.PathEscape(c.request) + "/request"
	var r operator.RequestBody
	if printed, err := c.ask(ctx, http.MethodGet, path, nil, &r); printed || err != nil {
		return err
	}
	_, rest, _ := strings.Cut(r.URL, "://")
	host, target, _ := strings.Cut(rest, "/")
	var b strings.Builder
	fmt.Fprintf(&b, "%s /%s HTTP/1.1\nHost: %s\n", printable(r.Method), printable(target), printable(host))
	for _, h := range r.Headers {
		fmt.Fprintf(&b, "%s: %s\n", printable(h.Name), printable(h.Value))
	}
	b.WriteByte('\n')
	if r.BodyBase64 != "" {
		r.Body = "(no text; in Base64) " + r.BodyBase64
	}
	for line := range strings.SplitSeq(r.Body, "\n") {
		for i, part := range strings.Split(line, "\t") {
			if i > 0 {
				b.WriteByte('\t')
			}
			b.WriteString(printable(part))
		}
		b.WriteByte('\n')
	}
	if r.BodyCut {
		fmt.Fprintf(&b, "\n(this is the beginning of %s)\n", counted(r.Bytes, "byte"))
	}
	_, err := fmt.Fprint(c.out, b.String())
	return err
}

// attemptRows is a table of delivery attempts, of one subscription or of all.
func attemptRows(list []operator.DeliveryBody, ofAll bool) [][]string {
	rows := [][]string{{
		"AT", "SUBSCRIPTION", "STREAM", "DELIVERY", "ATTEMPT", "RESULT", "STATUS", "TOOK", "EVENTS", "BYTES", "REASON",
	}}
	for _, d := range list {
		rows = append(rows, []string{
			stamp(d.At), when(ofAll, d.Subscription), d.Stream, cmp.Or(d.DeliveryID, d.WakeID), numberOf(d), d.Result,
			some(d.StatusCode), tookOf(d.TookMS), some(d.Events), some(d.Bytes), d.Reason,
		})
	}
	return rows
}

// numberOf says which attempt of its delivery it is.
func numberOf(d operator.DeliveryBody) string {
	return fmt.Sprint(d.Attempt) + when(d.MaxAttempts > 0, fmt.Sprint(" of ", d.MaxAttempts))
}

// delivery shows all that is kept of an attempt.
func (c *cli) delivery(d operator.DeliveryBody, first bool) error {
	if _, err := fmt.Fprint(c.out, when(!first, "\n")); err != nil {
		return err
	}
	return c.fields([][]string{
		{"at", d.At.UTC().Format(time.RFC3339Nano)},
		{"subscription", d.Subscription},
		{"stream", d.Stream},
		{"delivery", cmp.Or(d.DeliveryID, d.WakeID)},
		{"attempt", numberOf(d)},
		{"result", d.Result},
		{"class", d.Class},
		{"reason", d.Reason},
		{"took", tookOf(d.TookMS)},
		{"sent", when(d.Bytes > 0, counted(d.Bytes, "byte")+when(d.Events > 0, ", "+counted(d.Events, "event")))},
		{
			"to", d.RemoteAddress + when(d.HTTPVersion != "", ", HTTP "+d.HTTPVersion) +
				when(d.TLSVersion != "", ", TLS "+d.TLSVersion),
		},
		{"waited", when(d.WaitedMS > 0, tookOf(d.WaitedMS))},
		{"exchange", when(d.ExchangeMS > 0, tookOf(d.ExchangeMS))},
		{"status", some(d.StatusCode)},
		{"answer", d.ResponseBody},
	})
}

func tookOf(ms float64) string {
	took := time.Duration(ms * float64(time.Millisecond))
	if took < time.Second {
		return took.Round(100 * time.Microsecond).String()
	}
	return took.Round(10 * time.Millisecond).String()
}

// span converts --since and --until to what the API takes. Both may also say how long ago the time is.
func (c *cli) span() (err error) {
	if c.since, err = c.past("since", c.since); err == nil {
		c.until, err = c.past("until", c.until)
	}
	return err
}

func (c *cli) past(flag, text string) (string, error) {
	length, err := duration(text)
	switch {
	case err != nil: // the API checks whether it is a time
		return text, nil
	case length < 0:
		return "", usageError{fmt.Sprintf("--%s %q: expected how long ago, such as 1h or 2d, or a time", flag, text)}
	}
	return stamp(c.now().Add(-length)), nil
}

// duration reads a duration in Go's form, with weeks and days before it, such as 2d12h.
func duration(text string) (time.Duration, error) {
	const day = 24 * time.Hour
	var sum time.Duration
	for _, unit := range []struct {
		letter string
		length time.Duration
	}{{"w", 7 * day}, {"d", day}} {
		number, rest, found := strings.Cut(text, unit.letter)
		if !found {
			continue
		}
		n, err := strconv.ParseUint(number, 10, 12)
		if err != nil {
			return 0, err
		}
		if sum += time.Duration(n) * unit.length; rest == "" {
			return sum, nil
		}
		text = rest
	}
	rest, err := time.ParseDuration(text)
	return sum + rest, err
}
