package devrun

import (
	"errors"
	"net/http"
	"testing"

	"github.com/caravan-sched/caravan/planner/httpapi"
)

func TestCheckMoved(t *testing.T) {
	before := []any{alloc("0", "run/running", "n0"), alloc("1", "run/running", "n1")}
	gone := []any{alloc("0", "run/lost", "n0"), alloc("1", "stop/complete", "n1")}
	tests := map[string]struct {
		tape *tape
		want string
	}{
		"whole": {new(tape).add(before...).add(gone...).add(alloc("2", "run/running", "n1"), alloc("3", "run/running", "n2")), ""},
		"a member is there again": {new(tape).add(before...).add(gone...).add(alloc("2", "run/running", "n1"), alloc("3", "run/running", "n0")),
			"j.g[3] is still on gpu-1"},
		"one by one": {new(tape).add(before...).add(alloc("0", "stop/complete", "n0"), alloc("2", "run/running", "n2")), "not rolled back"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) { wantCheck(t, checkMoved(tt.tape.timeline, "j", "n0", "gpu-1"), tt.want) })
	}
}

func TestCheckMembersUntouched(t *testing.T) {
	tests := map[string]struct {
		after any
		want  string
	}{
		"an old one ends":  {alloc("0", "stop/complete", "n0"), ""},
		"a member goes on": {alloc("1", "run/running", "n1"), ""},
		"a member ends":    {alloc("1", "stop/running", "n1"), "j.g[1] is stop/running"},
		"another comes":    {alloc("2", "run/pending", "n0"), "j.g[2] was placed"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			p := new(tape).add(alloc("0", "stop/running", "n0"), alloc("1", "run/running", "n1"))
			index := p.timeline.index()
			wantCheck(t, checkMembersUntouched(p.add(tt.after).timeline, "j", index), tt.want)
		})
	}
	if got := timeline(nil).index(); got != 0 {
		t.Errorf("index of nothing = %d", got)
	}
}

func TestCheckRefused(t *testing.T) {
	denied := &httpapi.Error{Status: http.StatusForbidden, Message: "the token does not have submit-job"}
	wantCheck(t, checkRefused("c", denied, "submit-job"), "")
	wantCheck(t, checkRefused("c", denied, "read-job"), "does not name read-job")
	wantCheck(t, checkRefused("c", nil, ""), "it was done")
	wantCheck(t, checkRefused("c", errors.New("500"), ""), "500")
}

func TestCheckDoctor(t *testing.T) {
	d := httpapi.Doctor{Checks: []httpapi.Check{{Name: "gate", Status: httpapi.CheckWarn}}}
	wantCheck(t, checkDoctor(d), "")
	d.Checks = append(d.Checks, httpapi.Check{Name: "acl", Status: httpapi.CheckFail, Detail: "lacks x"})
	wantCheck(t, checkDoctor(d), "acl: lacks x")
}

func TestCheckUpdatedWhole(t *testing.T) {
	old := []string{"0", "1"}
	start := func() *tape { return new(tape).add(alloc("0", "run/running", "n0"), alloc("1", "run/running", "n1")) }
	wantCheck(t, checkUpdatedWhole(start().add(alloc("0", "stop/running", "n0"), alloc("1", "stop/running", "n1"),
		after(alloc("2", "run/pending", "n0"), "0"), after(alloc("3", "run/pending", "n1"), "1")).timeline, "j", old), "")
	wantCheck(t, checkUpdatedWhole(start().add(alloc("0", "stop/running", "n0"), after(alloc("2", "run/pending", "n0"), "0")).timeline, "j", old),
		"1 members of the old release beside 1 of the new")
}
