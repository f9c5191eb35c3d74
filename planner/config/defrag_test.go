package config

import (
	"fmt"
	"os"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"
)

// TestDefragDocument: the example turns moving on, and the table has every key
// with its default.
func TestDefragDocument(t *testing.T) {
	b, err := os.ReadFile("../../docs/defrag.md")
	if err != nil {
		t.Fatal(err)
	}
	text := string(b)
	m := regexp.MustCompile("(?s)```hcl\n(.*?)```").FindStringSubmatch(text)
	if m == nil {
		t.Fatal("there is no example")
	}
	cfg, err := parse([]byte(m[1]), "defrag.md", noEnv, noRead)
	if err != nil || !cfg.Policy.Defrag.Enabled {
		t.Errorf("%+v, %v", cfg.Policy.Defrag, err)
	}
	d := defaultDefrag()
	defaults := map[string]string{
		"enabled": fmt.Sprint(d.Enabled), "min_benefit_ratio": fmt.Sprint(d.MinBenefitRatio), "max_per_hour": fmt.Sprint(d.MaxPerHour), "max_per_gang": fmt.Sprint(d.MaxPerGang),
		"max_per_job": fmt.Sprint(d.MaxPerJob), "min_run_time": span(d.MinRunTime), "again": span(d.Again),
	}
	typ := reflect.TypeFor[fileDefrag]()
	for i := range typ.NumField() {
		key, _, _ := strings.Cut(typ.Field(i).Tag.Get("hcl"), ",")
		row := regexp.MustCompile(`(?m)^\| ` + "`" + key + "`" + ` \|.*\| (.*) \|$`).FindStringSubmatch(text)
		if row == nil || strings.Trim(row[1], "`") != defaults[key] {
			t.Errorf("%s: the table says %v, the default is %s", key, row, defaults[key])
		}
	}
}

// span says a duration as the documents do: "10m", "1h".
func span(d time.Duration) string {
	text := d.String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}
