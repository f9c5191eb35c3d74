package record_test

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/caravan-sched/caravan/planner/record"
)

// large is JSON that does not compress.
func large(bytes int) []byte {
	var out strings.Builder
	out.WriteString(`["`)
	for i := 0; out.Len() < bytes; i++ {
		sum := sha256.Sum256(fmt.Appendf(nil, "%d", i))
		out.WriteString(hex.EncodeToString(sum[:]))
	}
	out.WriteString(`"]`)
	return []byte(out.String())
}

func TestDocuments(t *testing.T) {
	vars, client := newVariables(t)
	docs := record.NewDocuments(client, "", "gangs")
	ctx := t.Context()
	if _, err := docs.Get(ctx, "ml", "train", ""); !errors.Is(err, record.ErrNotFound) {
		t.Fatalf("before: %v", err)
	}
	first, err := docs.Put(ctx, 0, []byte(`{"a":1}`), "ml", "train", "")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := docs.Put(ctx, 0, []byte(`{"a":2}`), "ml", "train", ""); !errors.Is(err, record.ErrConflict) {
		t.Errorf("made twice: %v, want %v", err, record.ErrConflict)
	}
	// One that is too large for a Variable, for a job with a name that no path has.
	odd := []string{"ml", "träin/../x y", "w"}
	if _, err := docs.Put(ctx, 0, large(300_000), odd...); err != nil {
		t.Fatal(err)
	}
	if doc, err := docs.Get(ctx, odd...); err != nil || string(doc.JSON) != string(large(300_000)) {
		t.Errorf("a large one: %d bytes, %v", len(doc.JSON), err)
	}
	second, err := docs.Put(ctx, first, large(200_000), "ml", "train", "")
	if err != nil || second <= first {
		t.Fatal(second, err)
	}
	all, err := docs.List(ctx)
	if err != nil || len(all) != 2 {
		t.Fatalf("%d listed, %v; want 2", len(all), err)
	}
	if _, err := docs.Put(ctx, second, []byte(`{}`), "ml", "train", ""); err != nil {
		t.Fatal(err)
	}
	if err := docs.Delete(ctx, odd...); err != nil {
		t.Fatal(err)
	}
	// Parts of contents that are gone do not stay behind.
	if len(vars.data) != 1 {
		t.Errorf("%d Variables are left, want 1", len(vars.data))
	}
	if all, err = docs.List(ctx); err != nil || len(all) != 1 || string(all[0].JSON) != "{}" {
		t.Errorf("listed %v, %v", all, err)
	}
}

func TestDocumentsThatAreDamaged(t *testing.T) {
	vars, client := newVariables(t)
	docs := record.NewDocuments(client, "", "gangs")
	ctx := t.Context()
	if _, err := docs.Put(ctx, 0, large(100_000), "ml", "train"); err != nil {
		t.Fatal(err)
	}
	for path := range vars.data {
		if strings.HasSuffix(path, "-1") {
			delete(vars.data, path)
		}
	}
	doc, err := docs.Get(ctx, "ml", "train")
	if !errors.Is(err, record.ErrDamaged) || doc.Index == 0 {
		t.Errorf("index %d, %v; want %v with the index", doc.Index, err, record.ErrDamaged)
	}
	if all, err := docs.List(ctx); err != nil || len(all) != 0 {
		t.Errorf("listed %v, %v; want none", all, err)
	}
	if _, err := docs.Put(ctx, doc.Index, []byte(`{}`), "ml", "train"); err != nil {
		t.Errorf("written over: %v", err)
	}
	vars.fail = func(string, string) int { return http.StatusInternalServerError }
	if _, err := docs.List(ctx); err == nil {
		t.Error("a Nomad in trouble lists")
	}
	if _, err := docs.Get(ctx, "ml", "train"); err == nil || errors.Is(err, record.ErrNotFound) {
		t.Errorf("a Nomad in trouble: %v", err)
	}
}
