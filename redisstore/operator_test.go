package redisstore_test

import (
	"fmt"
	"slices"
	"testing"

	"reveille/fsm"
)

// TestConsumersAreCountedAndListed holds what an operator sees, on a real server, the embedded one and a cluster.
func TestConsumersAreCountedAndListed(t *testing.T) {
	t.Parallel()
	for name, url := range serversAndEmbedded {
		t.Run(name, func(t *testing.T) {
			ctx := t.Context()
			w := open(t, url(t), 2)
			many, _, err := w.CreateSubscription(ctx, subscription("many"))
			if err != nil {
				t.Fatal(err)
			}
			few, none := subscription("few"), subscription("none")
			var want []string
			for n := range 400 { // more than Redis keeps in one piece
				path := fmt.Sprintf("/many/%d", n)
				must[fsm.Outcome](t)(w.Link(ctx, many, path, "1", "1"))
				want = append(want, fsm.ConsumerID("many", path))
			}
			must[fsm.Outcome](t)(w.Link(ctx, few, "/few", "1", "2"))

			counts := must[[][]int](t)(w.CountConsumers(ctx, []fsm.Subscription{few, many, none}))
			total := func(list []int) (n int) {
				for _, c := range list {
					n += c
				}
				return n
			}
			if len(counts) != 3 || total(counts[0]) != 1 || total(counts[1]) != 400 || total(counts[2]) != 0 {
				t.Fatalf("counted %v", counts)
			}
			if counts[0][w.PartitionOf("/few")] != 1 {
				t.Errorf("%v: it is not in its partition", counts[0])
			}
			scan := func(sub fsm.Subscription) (ids []string, calls int) {
				for p := range 2 {
					for cursor := "0"; ; {
						list, next, err := w.ScanConsumers(ctx, sub, p, cursor, 20)
						if err != nil {
							t.Fatal(err)
						}
						calls++
						for _, c := range list {
							ids = append(ids, c.ID)
							full := must[fsm.Consumer](t)(w.Consumer(ctx, c.Ref()))
							full.Links, c.Links = nil, nil
							if fmt.Sprintf("%+v", c) != fmt.Sprintf("%+v", full) {
								t.Errorf("listed as %+v, is %+v", c, full)
							}
						}
						if cursor = next; cursor == "0" {
							break
						}
					}
				}
				slices.Sort(ids)
				return slices.Compact(ids), calls
			}
			slices.Sort(want)
			ids, calls := scan(many)
			if !slices.Equal(ids, want) {
				t.Errorf("listed %d, want %d", len(ids), len(want))
			}
			if name != "embedded" && calls < 10 { // the embedded one knows no batches
				t.Errorf("%d calls for 400 consumers: they are not bounded", calls)
			}
			if ids, _ := scan(few); !slices.Equal(ids, []string{"few:%2Ffew"}) {
				t.Errorf("listed %v", ids)
			}
			if err := w.DeleteSubscription(ctx, "many"); err != nil {
				t.Fatal(err)
			}
			if ids, _ := scan(many); len(ids) != 0 {
				t.Errorf("of a deleted subscription: %v", ids)
			}
		})
	}
}
