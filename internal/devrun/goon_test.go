package devrun

import (
	"fmt"
	"testing"
)

func TestCheckCameBack(t *testing.T) {
	start := func(alloc string, rank, world int, epoch string) entry {
		return entry{alloc: alloc, word: wordStart, values: map[string]string{"rank": fmt.Sprint(rank), "world": fmt.Sprint(world), "epoch": epoch}}
	}
	first := diary{start("a", 0, 2, "1"), start("b", 1, 2, "1")}
	tests := map[string]struct {
		more diary
		want string
	}{
		"it came back":            {diary{start("b", 1, 2, "1"), start("c", 1, 2, "1")}, ""},
		"all started anew":        {diary{start("a", 0, 2, "2"), start("b", 1, 2, "2"), start("c", 1, 2, "2")}, "there were 2 common starts, want 1"},
		"a new allocation twice":  {diary{start("c", 1, 2, "1"), start("d", 1, 2, "1")}, "its allocations started [1 1 1] times"},
		"it took the first place": {diary{start("b", 0, 2, "1"), start("c", 1, 2, "1")}, "b started as rank 0 of 2"},
		"it is alone":             {diary{start("b", 1, 2, "1"), start("c", 1, 1, "1")}, "c started as rank 1 of 1"},
		"it did not come back":    {nil, "its allocations started [1] times"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			wantCheck(t, checkCameBack(append(first[:2:2], tt.more...), "a"), tt.want)
		})
	}
}
