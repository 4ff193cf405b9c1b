package operator_test

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
	svc *httpapi.Service
}

func newHarness(t *testing.T, change func(*httpapi.Config)) *harness {
	t.Helper()
	h, svc := service.New(t, change)
	return &harness{h, svc}
}

const hook = `{"webhook":"https://w.example/hook","description":"d"}`
