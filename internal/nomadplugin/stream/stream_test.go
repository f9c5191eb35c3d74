package stream_test

import (
	"context"
	"errors"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"
	"google.golang.org/grpc"

	"github.com/caravan-sched/caravan/internal/nomadplugin/stream"
)

var errFinal = errors.New("final")

func isFinal(err error) bool { return errors.Is(err, errFinal) }

func TestKeepOpenRunsAgainUntilTheContextEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		runs, start := 0, time.Now()
		err := stream.KeepOpen(ctx, hclog.NewNullLogger(), func(func()) error {
			runs++
			return errors.New("broken")
		}, isFinal)
		if err != nil {
			t.Errorf("KeepOpen() = %v, want nil", err)
		}
		if got := time.Since(start); got != time.Hour {
			t.Errorf("ended after %v, want an hour", got)
		}
		// The pauses grow to a minute, give or take half, so it neither gives
		// up nor spins.
		if runs < 40 || runs > 150 {
			t.Errorf("ran %d times in an hour, want about once a minute", runs)
		}
	})
}

func TestKeepOpenPausesLittleAfterASuccess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		runs, start := 0, time.Now()
		err := stream.KeepOpen(t.Context(), hclog.NewNullLogger(), func(ok func()) error {
			runs++
			ok()
			if runs == 20 {
				return errFinal
			}
			return nil
		}, isFinal)
		if !errors.Is(err, errFinal) {
			t.Errorf("KeepOpen() = %v, want %v", err, errFinal)
		}
		if got := time.Since(start); got > 40*time.Second {
			t.Errorf("19 pauses took %v, want at most 40s", got)
		}
	})
}

// fakeStream hands out numbers and then an error.
type fakeStream struct {
	grpc.ServerStreamingClient[int]
	next, last int
	err        error
}

func (f *fakeStream) Recv() (*int, error) {
	if f.next == f.last {
		return nil, f.err
	}
	f.next++
	n := f.next
	return &n, nil
}

func TestReceive(t *testing.T) {
	broken, stop := errors.New("broken"), errors.New("stop")
	tests := map[string]struct {
		err  error
		stop int
		want error
		sum  int
	}{
		"ends":          {err: io.EOF, sum: 6},
		"fails":         {err: broken, want: broken, sum: 6},
		"caller's stop": {err: io.EOF, stop: 2, want: stop, sum: 3},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			sum := 0
			err := stream.Receive(&fakeStream{last: 3, err: tt.err}, func(err error) error { return err }, func(n *int) error {
				sum += *n
				if *n == tt.stop {
					return stop
				}
				return nil
			})
			if !errors.Is(err, tt.want) || sum != tt.sum {
				t.Errorf("Receive() = %v with sum %d, want %v with %d", err, sum, tt.want, tt.sum)
			}
		})
	}
}

func TestTimes(t *testing.T) {
	if got := stream.TimeFromWire(stream.TimeToWire(time.Time{})); !got.IsZero() {
		t.Errorf("zero time came back as %v", got)
	}
	if got := stream.TimeFromWire(nil); !got.IsZero() {
		t.Errorf("no time came back as %v", got)
	}
	now := time.Unix(1, 2).UTC()
	if got := stream.TimeFromWire(stream.TimeToWire(now)); !got.Equal(now) {
		t.Errorf("%v came back as %v", now, got)
	}
	if stream.TimeToWire(time.Time{}).CheckValid() != nil {
		t.Error("zero time is not valid on the wire")
	}
}
