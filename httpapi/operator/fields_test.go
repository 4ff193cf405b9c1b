package operator

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	"reveille/fsm"
)

// notShown are the fields that may hold a secret, or that an operator does not need.
var notShown = []string{
	"webhook", "signature", "batch", "timeout", "retry", "disable_after", "headers", "authorization", "metadata",
}

func TestEveryFieldIsEitherShownToAnOperatorOrNot(t *testing.T) {
	var shown []string
	for _, f := range reflect.VisibleFields(reflect.TypeFor[SubscriptionBody]()) {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		shown = append(shown, name)
	}
	for _, f := range fsm.Fields {
		if slices.Contains(shown, f.Name) == slices.Contains(notShown, f.Name) {
			t.Errorf("%s: put it into SubscriptionBody or into notShown", f.Name)
		}
	}
}
