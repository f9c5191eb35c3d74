package apply

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/hashicorp/nomad/api"
)

var (
	// ErrUnavailable: Nomad does not answer, or says that it cannot. Nothing
	// more is tried now; what was begun is finished later.
	ErrUnavailable = errors.New("Nomad is not available")
	// ErrThrottled: Nomad asks for fewer requests.
	ErrThrottled = errors.New("Nomad asks for fewer requests")
	// ErrGarbage: Nomad's answer cannot be read; what it did shows at the next
	// look.
	ErrGarbage = errors.New("Nomad's answer cannot be read")
	// ErrForbidden: the planner's token lacks a capability, which is named.
	ErrForbidden = errors.New("the planner's token does not suffice")
	// ErrChanged: the job changed since it was looked at; look again.
	ErrChanged = errors.New("the job changed in between")
	// ErrRefused: Nomad will not have the job as it would have to be.
	ErrRefused = errors.New("Nomad refuses the job")
	// ErrNoFit: Nomad itself would not place the members as decided.
	ErrNoFit = errors.New("it does not fit")
)

// halts says whether an error concerns Nomad as a whole, so that the other
// jobs need not be tried.
func halts(err error) bool {
	return errors.Is(err, ErrUnavailable) || errors.Is(err, ErrThrottled)
}

// Halts says whether an error concerns Nomad as a whole, so that nothing else need
// be tried.
func Halts(err error) bool { return halts(err) || errors.Is(err, ErrGarbage) }

// classify wraps an error of Nomad's API with what it means. right is what the
// request needs, for the message.
func classify(doing, right string, err error) error {
	if err == nil {
		return nil
	}
	var answer api.UnexpectedResponseError
	if !errors.As(err, &answer) || !answer.HasStatusCode() {
		switch {
		case errors.Is(err, context.Canceled):
			return fmt.Errorf("%s: %w", doing, err)
		case unreachable(err):
			return fmt.Errorf("%s: %w: %w", doing, ErrUnavailable, err)
		}
		return fmt.Errorf("%s: %w: %w", doing, ErrGarbage, err)
	}
	body := strings.TrimSpace(answer.Body())
	switch code := answer.StatusCode(); {
	case code == http.StatusTooManyRequests:
		return fmt.Errorf("%s: %w: %s", doing, ErrThrottled, body)
	case code == http.StatusForbidden || code == http.StatusUnauthorized:
		return fmt.Errorf("%s: %w: it needs %s: %s", doing, ErrForbidden, right, body)
	case strings.Contains(body, api.RegisterEnforceIndexErrPrefix):
		return fmt.Errorf("%s: %w: %s", doing, ErrChanged, body)
	case code == http.StatusNotFound:
		return fmt.Errorf("%s: %w: %s", doing, ErrChanged, body)
	case code == http.StatusInternalServerError && !refusal(body), code > http.StatusInternalServerError:
		return fmt.Errorf("%s: %w: %d %s", doing, ErrUnavailable, code, body)
	}
	return fmt.Errorf("%s: %w: %s", doing, ErrRefused, body)
}

// refusal tells Nomad's answers to a job that it finds fault with from those
// of a server in trouble: both come as 500.
func refusal(body string) bool {
	for _, mark := range []string{"error occurred:", "errors occurred:", "validation failed", "job_max_", "does not exist", "not allowed", "can't be", "cannot be"} {
		if strings.Contains(body, mark) {
			return true
		}
	}
	return false
}

// unreachable tells a connection that failed from an answer that makes no
// sense.
func unreachable(err error) bool {
	var timeout interface{ Timeout() bool }
	if errors.As(err, &timeout) {
		return true
	}
	var network interface{ Temporary() bool }
	return errors.As(err, &network) || errors.Is(err, context.DeadlineExceeded)
}
