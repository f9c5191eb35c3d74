package gateway

import (
	"strings"
	"testing"

	"github.com/hashicorp/nomad/api"
)

const forEver = "Identity[caravan] identities without an expiration are insecure"

// alone and among are what Nomad 2.0 says.
const (
	alone = "1 warning:\n\n* Group \"trainer\" has warnings: 1 error occurred:\n\t* Task \"train\" has warnings: 1 error occurred:\n\t* 1 error occurred:\n\t* " + forEver
	among = "2 warnings:\n\n* Group \"a\" has warnings: 2 errors occurred:\n\t* mbits has been deprecated\n\t* Task \"train\" has warnings: 2 errors occurred:\n\t* 1 error occurred:\n\t* " + forEver +
		"\n\n\n\t* 1 error occurred:\n\t* Identity[s3] identities without an expiration are insecure\n\n\n\n\n\n\n* Group \"b\" has warnings: 1 error occurred:\n\t* Task \"train\" has warnings: 1 error occurred:\n\t* 1 error occurred:\n\t* " + forEver
)

func TestNomadsWarnings(t *testing.T) {
	mine := func(job *api.Job) {
		job.TaskGroups[0].Tasks[0].Identities = []*api.WorkloadIdentity{{Name: "caravan", Audience: []string{"caravan", "mine"}}}
	}
	tests := map[string]struct {
		give string
		job  func(*api.Job)
		want string
	}{
		"none":             {},
		"nothing else":     {give: alone},
		"the user's own":   {give: alone, job: mine, want: alone},
		"something else":   {give: "1 warning:\n\n* cron is deprecated", want: "1 warning:\n\n* cron is deprecated"},
		"not Nomad's form": {give: "beware: " + forEver, want: "beware: " + forEver},
		"shorter than it says": {
			give: "2 warnings:\n\n* " + forEver, want: "2 warnings:\n\n* " + forEver,
		},
		"longer than it says": {
			give: "1 warning:\n\n* " + forEver + "\n* more", want: "1 warning:\n\n* " + forEver + "\n* more",
		},
		"far more than it says": {give: "99999999999999999999 warnings:\n* " + forEver, want: "99999999999999999999 warnings:\n* " + forEver},
		"several lines":         {give: "2 warnings:\n\n* one\nand more\n* " + forEver, want: "1 warning:\n\n* one\nand more"},
		"among others": {
			give: among,
			want: "1 warning:\n\n* Group \"a\" has warnings: 2 errors occurred:\n\t* mbits has been deprecated\n\t* Task \"train\" has warnings: 1 error occurred:" +
				"\n\n\n\t* 1 error occurred:\n\t* Identity[s3] identities without an expiration are insecure\n\n\n\n\n\n",
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			job := gang()
			if test.job != nil {
				test.job(job)
			}
			s := &submission{original: job}
			if got := s.nomadsWarnings(test.give); got != test.want {
				t.Errorf("got  %q\nwant %q", got, test.want)
			}
		})
	}
}

// FuzzWithoutWarning: nothing but the sentence goes, whatever Nomad says.
func FuzzWithoutWarning(f *testing.F) {
	f.Add(alone)
	f.Add(among)
	f.Add("3 warnings:\n\n* a\n* 0 errors occurred:\n* " + forEver)
	f.Fuzz(func(t *testing.T, text string) {
		got := withoutWarning(text, forEver)
		if strings.Count(got, "\n") > strings.Count(text, "\n") {
			t.Errorf("%q became longer: %q", text, got)
		}
		if got == text || got == "" {
			return
		}
		for line := range strings.Lines(text) {
			line = strings.TrimRight(line, "\n")
			if strings.Contains(line, forEver) || warningList.MatchString(line) || warningHead.MatchString(line) {
				continue
			}
			if !strings.Contains(got, line) {
				t.Errorf("%q is gone from %q: %q", line, text, got)
			}
		}
	})
}
