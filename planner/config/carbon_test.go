package config

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func carbonConfig(inside string) string {
	return "burst {\n pools = \"p.hcl\"\n carbon {\n" + inside + "\n }\n}"
}

func TestCarbon(t *testing.T) {
	files := reads(map[string]string{"/etc/p.hcl": somePools, "p.hcl": somePools})
	c, err := parse([]byte(carbonConfig(`url = "https://carbon.example/{region}"`)), "/etc/c.hcl", noEnv, files)
	if err != nil {
		t.Fatal(err)
	}
	want := &CarbonSource{URL: "https://carbon.example/{region}", Value: "carbonIntensity", Every: 15 * time.Minute, Keep: 6 * time.Hour}
	if diff := cmp.Diff(want, c.Burst.Carbon); diff != "" {
		t.Errorf("defaults (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(map[string]string{"eu": "eu-west-1"}, c.Burst.CarbonZones()); diff != "" {
		t.Errorf("zones (-want +got):\n%s", diff)
	}
	c, err = parse([]byte(carbonConfig(`url = "https://carbon.example/latest?zone={region}"
value = "data.0.actual"
header = "auth-token"
token_file = "carbon.token"
zones = { "eu-west-1" = "IE" }
every = "5m"
keep = "1h"`)), "/etc/c.hcl", noEnv, files)
	if err != nil {
		t.Fatal(err)
	}
	want = &CarbonSource{URL: "https://carbon.example/latest?zone={region}", Value: "data.0.actual", Header: "auth-token", TokenFile: "/etc/carbon.token", Zones: map[string]string{"eu-west-1": "IE"}, Every: 5 * time.Minute, Keep: time.Hour}
	if diff := cmp.Diff(want, c.Burst.Carbon); diff != "" {
		t.Errorf("all keys (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(map[string]string{"eu": "IE"}, c.Burst.CarbonZones()); diff != "" {
		t.Errorf("zones (-want +got):\n%s", diff)
	}
}

func TestCarbonFaults(t *testing.T) {
	const good = "url = \"https://h/{region}\"\n"
	tests := map[string]struct {
		inside string
		want   []string
	}{
		"nobody to ask":      {"", []string{"burst.carbon.url: want a URL with {region} in it"}},
		"no region":          {`url = "https://h/latest"`, []string{"c.hcl:4: burst.carbon.url: want a URL with {region}"}},
		"another scheme":     {`url = "file:///{region}"`, []string{"want a URL"}},
		"a password":         {`url = "https://u:geheim@h/{region}"`, []string{"a password is for token_file"}},
		"a token in plain":   {"url = \"http://h/{region}\"\ntoken_file = \"t\"", []string{"want https"}},
		"a host by region":   {`url = "https://{region}.h/x"`, []string{"want {region} behind the host"}},
		"a header of none":   {good + `header = "X"`, []string{"burst.carbon.header", "want token_file"}},
		"a header of two":    {good + "token_file = \"t\"\nheader = \"A: b\"", []string{"want a header's name"}},
		"too often, and all": {good + "every = \"1s\"\nkeep = \"soon\"\nvalue = \"a..b\"", []string{"c.hcl:5: burst.carbon.every is 1s: want 1m or more", "c.hcl:6: burst.carbon.keep", `c.hcl:7: burst.carbon.value is "a..b"`}},
		"kept too briefly":   {good + "every = \"1h\"\nkeep = \"30m\"", []string{"burst.carbon.keep is 30m0s: want 1h0m0s (every) or more"}},
		"a zone of no pool":  {good + `zones = { "eu-west-2" = "GB" }`, []string{"burst.carbon.zones", `did you mean "eu-west-1"?`}},
		"a zone with a path": {good + `zones = { "eu-west-1" = "../x" }`, []string{"want the source's name of a region"}},
		"an unknown key":     {good + `token = "x"`, []string{"c.hcl:5", "burst.carbon.token is not known here"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := parse([]byte(carbonConfig(test.inside)), "c.hcl", noEnv, reads(map[string]string{"p.hcl": somePools}))
			if err == nil {
				t.Fatal("no fault")
			}
			for _, want := range test.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("error = %v\nwant %q", err, want)
				}
			}
			if strings.Contains(err.Error(), "geheim") {
				t.Errorf("the password is in the fault: %v", err)
			}
		})
	}
}

// The token's file is read each time, so that it can be changed.
func TestCarbonToken(t *testing.T) {
	file := filepath.Join(t.TempDir(), "token")
	s := &CarbonSource{TokenFile: file}
	for _, step := range []struct{ text, want, fault string }{{"abc\n", "abc", ""}, {"def", "def", ""}, {" \n", "", "want one line"}, {"a\nb", "", "want one line"}} {
		if err := os.WriteFile(file, []byte(step.text), 0o600); err != nil {
			t.Fatal(err)
		}
		if got, err := s.ReadToken(); got != step.want || (err == nil) != (step.fault == "") || err != nil && !strings.Contains(err.Error(), step.fault) {
			t.Errorf("%q is %q, %v", step.text, got, err)
		}
	}
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	if _, err := s.ReadToken(); err == nil || !strings.Contains(err.Error(), "read burst.carbon.token_file") {
		t.Errorf("error = %v", err)
	}
	if got, err := (&CarbonSource{}).ReadToken(); got != "" || err != nil {
		t.Errorf("no file: %q, %v", got, err)
	}
}
