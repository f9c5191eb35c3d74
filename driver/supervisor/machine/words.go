package machine

import (
	"fmt"
	"strings"
	"time"
	"unicode"

	"github.com/caravan-sched/caravan/driver/gangapi"
)

// longest is how many bytes of somebody else's words are repeated.
const longest = 500

// short makes somebody else's words fit to be shown.
func short(s string) string {
	s = strings.Join(strings.Fields(strings.ToValidUTF8(s, "?")), " ")
	s = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return '?'
		}
		return r
	}, s)
	if len(s) > longest {
		s = strings.ToValidUTF8(s[:longest], "") + "…"
	}
	return s
}

func orElse(s, other string) string {
	if s == "" {
		return other
	}
	return s
}

func orNothing(prefix, s string) string {
	if s == "" {
		return ""
	}
	return prefix + short(s)
}

func list(names []string) string {
	if len(names) == 0 {
		return "none"
	}
	return strings.Join(names, ", ")
}

func faultText(f *gangapi.NodeFault) string {
	text := short(f.Check)
	if f.GPU != "" {
		text += " (" + short(f.GPU) + ")"
	}
	return text + ": " + short(f.Detail)
}

func endedText(e Ended, ran time.Duration) string {
	how := fmt.Sprintf("exited with code %d", e.Code)
	if e.Signal != 0 {
		how = fmt.Sprintf("was ended by signal %d", e.Signal)
	}
	if e.OOM {
		how += " for lack of memory"
	}
	return fmt.Sprintf("the user's code %s after %s", how, round(ran))
}

// round shows a time to the millisecond, or where it is long, to the second.
func round(d time.Duration) time.Duration {
	if d >= time.Minute {
		return d.Round(time.Second)
	}
	return d.Round(time.Millisecond)
}
