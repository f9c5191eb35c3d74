package burstapi

import (
	"strings"
	"testing"
)

func TestReportCheck(t *testing.T) {
	tests := map[string]struct {
		report Report
		// want are parts of the error, one for each fault; none is no error.
		want []string
	}{
		"ordered": {Report{Pool: "eu", Purchase: "p1", Kind: ReportOrdered}, nil},
		"failed":  {Report{Pool: "eu", Purchase: "p1", Kind: ReportFailed, Reason: ReasonQuota, Message: "42 of 40"}, nil},
		"gone":    {Report{Pool: "eu", Purchase: "p1", Kind: ReportGone, Nodes: []string{"p1-0"}}, nil},
		"empty":   {Report{}, []string{"pool:", "purchase:", "kind:"}},
		"failed without a reason": {
			Report{Pool: "eu", Purchase: "p1", Kind: ReportFailed}, []string{"reason: \"\": want one of capacity, quota, timeout, refused, error"}},
		"present with one": {
			Report{Pool: "eu", Purchase: "p1", Kind: ReportPresent, Reason: ReasonError}, []string{"reason: \"error\": want none"}},
		"names": {
			Report{Pool: "eu", Purchase: "p1", Kind: ReportGone, Nodes: []string{"a", "", strings.Repeat("x", 200)}}, []string{"nodes[1]:", "nodes[2]:"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			err := test.report.Check()
			if err == nil {
				if len(test.want) > 0 {
					t.Fatalf("no error, want %q", test.want)
				}
				return
			}
			lines := strings.Split(err.Error(), "\n")
			if len(lines) != len(test.want) {
				t.Fatalf("faults = %q, want %q", lines, test.want)
			}
			for i, want := range test.want {
				if !strings.Contains(lines[i], want) {
					t.Errorf("fault %q, want %q", lines[i], want)
				}
			}
		})
	}
}

func TestReportCheckCutsMessages(t *testing.T) {
	r := Report{Pool: "eu", Purchase: "p1", Kind: ReportOrdered, Message: strings.Repeat("ä", maxMessage)}
	if err := r.Check(); err != nil {
		t.Fatal(err)
	}
	if len(r.Message) > maxMessage+len("…") || !strings.HasSuffix(r.Message, "ä…") {
		t.Errorf("message has %d bytes and ends in %q", len(r.Message), r.Message[len(r.Message)-6:])
	}
}
