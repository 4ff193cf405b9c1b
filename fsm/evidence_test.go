package fsm

import "testing"

func TestWhereASubscriptionBeginsInAStream(t *testing.T) {
	const tail = Offset("30")
	noted := Stream{State: StreamPresent, Noted: 100, Linked: 100, Begin: Start, Tail: "20"}
	heard := noted
	heard.Begin = "10"
	fresh := NewStream("/a", "10")
	lost := fresh
	lost.Lost = 90
	awaited := Stream{State: StreamAwaited, Noted: 100, Linked: 100, Begin: Start}
	for name, tt := range map[string]struct {
		version    int64
		stream     Stream
		tail, seen Offset
		want       Offset
		rule       StartRule
	}{
		"it was looked at before the creator was told: there": {101, noted, tail, "25", "25", StartSeen},
		"it was looked at before the creator was told: not there": {
			101, noted, tail, Start, Start, StartSeen,
		},
		"what was seen then is of an older stream of that name": {101, noted, tail, "40", "20", StartLater},
		"looked at in time, whatever may have been lost":        {80, lost, tail, "25", "25", StartSeen},
		"the record may have been lost since":                   {90, lost, tail, "", Start, StartLost},
		"it was created after the loss":                         {91, lost, tail, "", "10", StartEarlier},
		"it came earlier than the stream":                       {100, noted, tail, "", Start, StartEarlier},
		"the stream was first heard of through an append":       {100, heard, tail, "", "10", StartEarlier},
		"nobody can tell yet which came first":                  {1 << 50, fresh, tail, "", "10", StartEarlier},
		"where it was first heard of is beyond its end":         {100, heard, "05", "", Start, StartBack},
		"it came later, and nobody has seen the stream before":  {101, awaited, tail, "", Start, StartUnseen},
		"it came later, and the tail has moved back":            {101, noted, "05", "", Start, StartBack},
		"it came later": {101, noted, tail, "", "20", StartLater},
		"it came later, and nothing has happened since": {101, noted, "20", "", "20", StartLater},
	} {
		t.Run(name, func(t *testing.T) {
			got, rule := StartOffset(Subscription{Version: tt.version}, tt.stream, tt.tail, tt.seen)
			if got != tt.want || rule != tt.rule {
				t.Errorf("it begins at %q, because %q; want %q, because %q", got, rule, tt.want, tt.rule)
			}
		})
	}
}

func TestWhereASubscriptionBeginsThatSaysSo(t *testing.T) {
	noted := Stream{State: StreamPresent, Noted: 100, Linked: 100, Begin: Start, Tail: "20"}
	heard, unseen, lost := noted, noted, noted
	heard.Begin, unseen.Tail, lost.Lost = "10", "", 101
	const epoch, anew = Offset("e/05 5::e"), Offset("f/05 5::f")
	for name, tt := range map[string]struct {
		start      Offset
		version    int64
		stream     Stream
		tail, seen Offset
		want       Offset
		rule       StartRule
	}{
		"from the start, of a stream that was there":         {Start, 101, noted, "30", "25", Start, StartAsked},
		"from the start, of one that was linked later":       {Start, 101, noted, "30", "", Start, StartAsked},
		"from the start, of one heard of through an append":  {Start, 100, heard, "30", "", Start, StartAsked},
		"from the start, of one that came later":             {Start, 100, noted, "30", "", Start, StartEarlier},
		"from an offset, of a stream that was there":         {"15", 101, noted, "30", "25", "15", StartAsked},
		"from an offset, of one that was linked later":       {"25", 101, noted, "30", "", "25", StartAsked},
		"from an offset that is the tail":                    {"30", 101, noted, "30", "30", "30", StartAsked},
		"from an offset beyond the tail":                     {"31", 101, noted, "30", "30", Start, StartBack},
		"from an offset, of a stream that came later":        {"15", 100, noted, "30", "", Start, StartEarlier},
		"from an offset, of one that was not there":          {"15", 101, noted, "30", Start, Start, StartSeen},
		"from an offset, of one whose end was unknown":       {"15", 101, unseen, "30", "", Start, StartUnseen},
		"from an offset, of one that may have been lost":     {"15", 101, lost, "30", "", Start, StartLost},
		"from an offset, of one that was made anew, shorter": {"03", 101, noted, "05", "", Start, StartBack},
		"from an offset before where it was heard of":        {"05", 100, heard, "30", "", "05", StartAsked},
		"from an offset behind where it was heard of":        {"15", 100, heard, "30", "", "10", StartEarlier},
		"from an offset of the incarnation that is there": {
			epoch, 101, noted, "e/10 10::e", "e/10 10::e", epoch, StartAsked,
		},
		"from an offset of another incarnation": {anew, 101, noted, "e/10 10::e", "e/10 10::e", Start, StartBack},
		"from an offset of an incarnation, of a stream without": {
			"00/05 5::00", 101, noted, "30", "30", Start, StartBack,
		},
		"from an offset without an incarnation, of a stream with one": {
			"0", 101, noted, "e/10 10::e", "e/10 10::e", Start, StartBack,
		},
	} {
		t.Run(name, func(t *testing.T) {
			got, rule := StartOffset(Subscription{Version: tt.version, Start: tt.start}, tt.stream, tt.tail, tt.seen)
			if got != tt.want || rule != tt.rule {
				t.Errorf("it begins at %q, because %q; want %q, because %q", got, rule, tt.want, tt.rule)
			}
		})
	}
}

func TestWhatBeliesTheEndThatWasNoted(t *testing.T) {
	open, closed := Noted{Tail: "20"}, Noted{Tail: "20", Closed: true}
	for name, tt := range map[string]struct {
		noted Noted
		tail  Offset
		open  bool
		want  bool
	}{
		"nothing was noted":                        {Noted{}, "20", true, false},
		"the same":                                 {open, "20", true, false},
		"it was closed since":                      {open, "20", false, false},
		"it went on":                               {open, "30", true, false},
		"it went on and was closed":                {open, "30", false, false},
		"it is shorter":                            {open, "10", true, true},
		"it is another incarnation, further":       {Noted{Tail: "a/20 1"}, "b/30 1", true, true},
		"the same end":                             {closed, "20", false, false},
		"the end is open again":                    {closed, "20", true, true},
		"it goes on behind its end":                {closed, "30", true, true},
		"it ends further on":                       {closed, "30", false, true},
		"it ends sooner":                           {closed, "10", false, true},
		"it is open, and shorter than its end was": {closed, "10", true, true},
	} {
		t.Run(name, func(t *testing.T) {
			info := StreamInfo{Exists: true, Tail: tt.tail, Closed: !tt.open}
			if got := tt.noted.BeliedBy(info); got != tt.want {
				t.Errorf("%+v is belied by %+v: %v, want %v", tt.noted, info, got, tt.want)
			}
		})
	}
}
