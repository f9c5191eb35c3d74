package terraform

import (
	"strings"
	"testing"
)

func TestRedact(t *testing.T) {
	r := newRedactor([]string{
		"AWS_SECRET_ACCESS_KEY=wJalrXUtnFEMI/K7MDENG", "HOME=/home/me", "TF_VAR_db=hunter2hunter2", "ARM_CLIENT_SECRET=abcdef", "ARM_CLIENT_SECRET_LONG=abcdefghij",
		"GOOGLE_CREDENTIALS={\"type\":\"service_account\",\"private_key\":\"-----BEGIN PRIVATE KEY-----\\nMIIEvQ\\n-----END PRIVATE KEY-----\\n\",\"project_id\":\"project-one\"}",
		"NOMAD_TOKEN=x", "SOME_KEY_FILE=first-line-of-it\nsecond-line-of-it",
	})
	tests := map[string]struct {
		text string
		gone []string
		kept []string
	}{
		"a value":        {"sign with wJalrXUtnFEMI/K7MDENG failed in /home/me", []string{"wJalrX"}, []string{"sign with", "/home/me"}},
		"a longer one":   {"was abcdefghij", []string{"abcdef", "ghij"}, nil},
		"a variable":     {"var.db is hunter2hunter2", []string{"hunter2"}, []string{"var.db"}},
		"a field":        {"key MIIEvQ? -----BEGIN PRIVATE KEY-----\nMIIEvQ\n-----END PRIVATE KEY----- of project-one", []string{"PRIVATE KEY---"}, []string{"project-one"}},
		"in JSON":        {`"-----BEGIN PRIVATE KEY-----\nMIIEvQ\n-----END PRIVATE KEY-----\n"`, []string{"MIIEvQ"}, nil},
		"a line":         {"read second-line-of-it", []string{"second-line"}, nil},
		"a short value":  {"x marks the spot", nil, []string{"x marks the spot"}},
		"a known form":   {"key AKIAIOSFODNN7EXAMPLE is unknown", []string{"AKIA"}, []string{"is unknown"}},
		"a telling name": {`password = "correct-horse"`, []string{"correct-horse"}, []string{"password"}},
		"in an address":  {"GET https://me:pass12@host/x failed", []string{"pass12"}, []string{"@host/x failed"}},
		"a header":       {"Authorization: Bearer abc.def.ghi", []string{"abc.def"}, nil},
	}
	for name, test := range tests {
		got := r.clean(test.text)
		for _, g := range test.gone {
			if strings.Contains(got, g) {
				t.Errorf("%s: %q holds %q", name, got, g)
			}
		}
		for _, k := range test.kept {
			if !strings.Contains(got, k) {
				t.Errorf("%s: %q lacks %q", name, got, k)
			}
		}
	}
}
