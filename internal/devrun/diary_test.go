package devrun

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

func TestReadDiary(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"a-1":     "1000 start pid=7 rank=0 step=0 epoch=x\n3000 end step=2\n",
		"b-1":     "2000 start pid=8 rank=1 step=0 epoch=x\n4000 start pid=9 rank=1 step=2 epoch=y\n50",
		"crash-1": "", "finish": "",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	d, err := readDiary(dir)
	if err != nil || len(d) != 4 || d[0].alloc != "a-1" || d[3].number("pid") != 9 {
		t.Fatalf("diary = %v, %v", d, err)
	}
	l := d.launches()
	if len(l) != 2 || l[0].spread() != time.Microsecond || l[1].epoch != "y" {
		t.Errorf("launches = %v", l)
	}
	if got := d.of("a-1").with(wordEnd); len(got) != 1 || got[0].number("step") != 2 || got[0].number("none") != -1 {
		t.Errorf("ends of a-1 = %v", got)
	}
	if d, err := readDiary(filepath.Join(dir, "none")); d != nil || err != nil {
		t.Errorf("diary that is not there = %v, %v", d, err)
	}
	for _, bad := range []string{"x start\n", "12\n", "12 start pid\n"} {
		if err := os.WriteFile(filepath.Join(dir, "c-1"), []byte(bad), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := readDiary(dir); err == nil {
			t.Errorf("%q was read", bad)
		}
	}
}
