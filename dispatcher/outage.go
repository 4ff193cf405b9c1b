package dispatcher

import (
	"time"

	"go.uber.org/zap"

	"reveille/fsm/throttle"
)

// deliveries names the work of the dispatcher among the tasks of an outage.
const deliveries = "deliveries"

// outage logs once when the store stops answering and once when it answers again, unless another task has logged that.
type outage struct {
	*throttle.Outage
	log *zap.Logger
	now func() time.Time
}

func (o *outage) failed(err error) {
	if outages, log := o.Failed(deliveries, o.now()); log {
		o.log.Error("redis does not answer; watching and delivering wait", zap.Int("times", outages),
			zap.String("task", deliveries), zap.Error(err))
	}
}

// lasts says whether the store does not answer.
func (o *outage) lasts() bool { return o.Fails(deliveries) }

func (o *outage) over() {
	if lasted, log := o.Worked(deliveries, o.now()); log {
		o.log.Info("redis answers again", zap.Duration("outage", lasted))
	}
}
