package upstream

import (
	"bufio"
	"errors"
	"hash/maphash"
	"io"

	"reveille/fsm"
)

// sumsMax bounds the sums of one answer. They take 8 MiB.
const sumsMax = 1 << 20

// seed is the seed of the sums. The sums never leave the program.
var seed = maphash.MakeSeed()

// stretch is what a read shows: n messages, or bytes, up to next. sums has one sum for each, at most sumsMax. They
// align two reads that show the same. sums is empty if the caller did not ask for it.
type stretch struct {
	next fsm.Offset
	n    int64
	sums []uint64
}

// addMessages adds all messages of an array. All messages that are too large or too deep for a delivery get the same
// sum.
func (s *stretch) addMessages(in *array, sums bool) error {
	for ; ; s.n++ {
		more, err := in.more()
		switch {
		case err != nil || !more:
			return err
		case !sums || s.n == sumsMax:
			n, err := in.rest()
			s.n += n
			return err
		}
		event, whole, err := in.take(fsm.MaxDeliveryBytes)
		if err == nil && !whole {
			err = in.skip()
		}
		if err != nil {
			return err
		}
		s.sums = append(s.sums, maphash.Bytes(seed, event))
	}
}

// addBytes adds all bytes of an answer.
func (s *stretch) addBytes(in *bufio.Reader, sums bool) error {
	for sums && s.n < sumsMax {
		c, err := in.ReadByte()
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		}
		s.n, s.sums = s.n+1, append(s.sums, uint64(c))
	}
	n, err := io.Copy(io.Discard, in)
	s.n += n
	return err
}

// overlap returns how much of a stretch lies before another one, which begins inside of it. The result ok is false if
// that is unclear: there are too few sums, or they fit in no place, or in several. Equal messages have equal sums, so
// the true place is always among those that fit.
func (s stretch) overlap(other stretch) (n int64, ok bool) {
	if int64(len(s.sums)) != s.n || s.n == 0 || len(other.sums) == 0 {
		return 0, false
	}
	// Knuth, Morris and Pratt: shorter holds, for each prefix of the other stretch, the longest shorter prefix that it
	// ends with.
	sums := other.sums[:min(len(other.sums), len(s.sums))]
	shorter := make([]int, len(sums))
	fits := func(at int, sum uint64) int {
		for at > 0 && (at == len(sums) || sums[at] != sum) {
			at = shorter[at-1]
		}
		if sums[at] == sum {
			at++
		}
		return at
	}
	for i := 1; i < len(sums); i++ {
		shorter[i] = fits(shorter[i-1], sums[i])
	}
	places, at := 0, 0
	for i, sum := range s.sums {
		if at = fits(at, sum); at == len(sums) {
			places, n = places+1, int64(i+1-at)
		}
	}
	if at == len(sums) {
		at = shorter[at-1] // the full match was counted
	}
	for ; at > 0; at = shorter[at-1] {
		places, n = places+1, int64(len(s.sums)-at)
	}
	return n, places == 1
}
