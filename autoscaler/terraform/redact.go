package terraform

import (
	"encoding/json"
	"regexp"
	"slices"
	"strings"
)

const (
	// hidden stands for what is not shown.
	hidden = "(hidden)"
	// minSecret is the shortest value that is hidden: a shorter one would take
	// words out of messages, and is no credential.
	minSecret = 6
)

var (
	// secretName are the environment variables whose values never show.
	secretName = regexp.MustCompile(`(?i)(secret|token|passw|credential|private|access_key|api_?key|account_key|sas|auth|cert|fingerprint|^tf_var_|^arm_client|^tf_http_|pgpass|_key$|_key_)`)
	// secretText are secrets whose form gives them away, wherever they come from.
	secretText = []*regexp.Regexp{
		regexp.MustCompile(`-----BEGIN [A-Z ]*PRIVATE KEY-----[\s\S]*?(-----END [A-Z ]*PRIVATE KEY-----|$)`),
		regexp.MustCompile(`\b(AKIA|ASIA)[0-9A-Z]{16}\b`),
		regexp.MustCompile(`\beyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]*`),
		regexp.MustCompile(`\bya29\.[A-Za-z0-9._-]{10,}`),
	}
	// namedText is a value that follows a telling name.
	namedText = regexp.MustCompile(`(?i)((?:secret|token|password|passwd|api[_-]?key|access[_-]?key|private[_-]?key|authorization)[a-z_-]*["']?\s*[=:]\s*["']?(?:(?:bearer|basic)\s+)?)([^\s"',;]{4,})`)
	// userInfo is what an address holds before the host.
	userInfo = regexp.MustCompile(`(\b[a-z][a-z0-9+.-]*://)[^/\s@"']+@`)
)

// redactor takes credentials out of texts.
type redactor struct{ values []string }

// newRedactor hides the values of an environment's variables (NAME=VALUE) that
// are credentials by their names.
func newRedactor(environ []string) *redactor {
	r := &redactor{}
	for _, kv := range environ {
		name, value, _ := strings.Cut(kv, "=")
		if secretName.MatchString(name) {
			r.hide(value)
		}
	}
	// Longer ones first: one may be a part of another.
	slices.SortFunc(r.values, func(a, b string) int { return len(b) - len(a) })
	r.values = slices.Compact(r.values)
	return r
}

func (r *redactor) hide(value string) {
	if len(value) < minSecret || value == "false" {
		return
	}
	r.values = append(r.values, value)
	// A message may quote it in JSON, or only one line or one field of it.
	if quoted, err := json.Marshal(value); err == nil {
		if inner := string(quoted[1 : len(quoted)-1]); inner != value {
			r.values = append(r.values, inner)
		}
	}
	var fields map[string]any
	if json.Unmarshal([]byte(value), &fields) == nil {
		for name, v := range fields {
			if s, ok := v.(string); ok && secretName.MatchString(name) {
				r.hide(s)
			}
		}
		return
	}
	if strings.Contains(value, "\n") {
		for line := range strings.SplitSeq(value, "\n") {
			if line = strings.TrimSpace(line); len(line) >= 2*minSecret {
				r.values = append(r.values, line)
			}
		}
	}
}

// clean is a text without credentials.
func (r *redactor) clean(text string) string {
	for _, v := range r.values {
		text = strings.ReplaceAll(text, v, hidden)
	}
	for _, p := range secretText {
		text = p.ReplaceAllLiteralString(text, hidden)
	}
	text = userInfo.ReplaceAllString(text, "${1}"+hidden+"@")
	return namedText.ReplaceAllString(text, "${1}"+hidden)
}
