package ojs_test

import (
	"testing"

	"go.uber.org/goleak"

	"reveille/httpapi"
	"reveille/test/ports"
	"reveille/test/ports/service"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type harness struct {
	*ports.Harness
}

func newHarness(t *testing.T, change func(*httpapi.Config)) *harness {
	t.Helper()
	h, _ := service.New(t, change)
	return &harness{h}
}

// app is the origin of a page.
const app = "https://app.example"
