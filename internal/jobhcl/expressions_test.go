package jobhcl

import (
	"encoding/json"
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/nomad/api"
)

// expressions are at the edges of what is kept for the client and what is
// evaluated.
var expressions = []string{
	`"${attr.kernel.name}"`, `"${ attr.kernel.name }"`, `"${  attr.x}-${meta.y  }"`, `attr.kernel.name`, `"a ${node.unique.id} b"`,
	`"${attr.unique.platform.aws.instance-type}"`, `"${meta["a-b"]}"`, `"${meta["a b"].c}"`, `"${attr.driver.0}"`, `"${NOMAD_META_x}"`,
	`"${upper(attr.x)}"`, `upper("${attr.x}")`, `"${attr.x == "y" ? "a" : "b"}"`, `"${attr.x}" == "${attr.x}" ? "same" : "other"`,
	`"%{if true}${attr.x}%{endif}"`, `"$${attr.x}"`, `"$$${attr.x}"`, `"${"${attr.x}"}"`, `"${local.a}"`, `"${var.v}"`,
	`join(",", ["${attr.x}", "b"])`, `join(",", [for x in ["a"] : "${x}-${attr.x}"])`, `join(",", [for attr in ["a"] : attr])`,
	`join(",", [for k, v in { a = "x" } : "${k}${v}${meta.k}"])`, `jsonencode({ attr = attr.x })`, `jsonencode({ (attr.x) = 1 })`,
	`jsonencode({ "${attr.x}" = 1 })`, `jsonencode([attr.x, attr.y][*])`, `jsonencode(convert(["a"], list(string)))`,
	`try(attr.x.y, "z")`, `can(attr.x) ? "yes" : "no"`, `"${device.attr.memory}"`, `"${env["HOME"]}"`, `attr`, `"${attr.*.x}"`,
	`attr.x[0]`, `(attr.x)`, `!attr.x`, `-attr.x`, `attr.x + 1`, `format("%s", attr.x)`, `"${attr.x}${attr.y}"`, `"\"${attr.x}\""`,
	"<<EOT\na ${NOMAD_DC} b\n  ${ attr.x }\nEOT", "<<-EOT\n    a ${NOMAD_DC}\n      b\n    EOT", `null`, `5`, `true`, `1e3`, `1.50`,
	`"é ${attr.x} 漢"`, `"${attr.x # comment` + "\n}\"", `substr("${attr.x}", 0, 4)`, `length("${attr.x}")`, `local.b.c`, `local.list[1]`, `keys(local.b)[0]`,
	`element(local.list, 5)`, `reverse("abc")`, `timeadd("2031-01-01T00:00:00Z", "1h")`, `cidrhost("10.0.0.0/8", 5)`, `base64decode("eA==")`,
	`csvdecode("a\n1")[0].a`, `yamldecode("a: 1").a`, `merge({ a = 1 }, { b = 2 }).b`, `regex_replace("abc", "b", "x")`, `urlencode("a b")`, `uuidv5("dns", "x")`,
}

// withExpression is a job file that has the expression as the job's name.
func withExpression(expr string) string {
	return "locals {\n  a = \"${attr.l}-${var.v}\"\n  b = { c = \"d\" }\n  list = [\"p\", \"q\"]\n}\n" +
		"variable \"v\" {\n  default = \"w\"\n}\njob \"x\" {\n  name = " + expr + "\n}\n"
}

// evaluate is what each expression comes to; those refused are missing.
func evaluate(parse func(src string) (*api.Job, error)) map[string]string {
	out := map[string]string{}
	for _, expr := range expressions {
		if job, err := parse(withExpression(expr)); err == nil {
			out[expr] = *job.Name
		}
	}
	return out
}

const recordedExpressions = "testdata/expressions.json"

func TestExpressionsEqualRecorded(t *testing.T) {
	b, err := os.ReadFile(recordedExpressions)
	if err != nil {
		t.Fatal(err)
	}
	var want map[string]string
	if err := json.Unmarshal(b, &want); err != nil {
		t.Fatal(err)
	}
	if len(want) < 40 {
		t.Fatalf("only %d expressions were accepted", len(want))
	}
	got := evaluate(func(src string) (*api.Job, error) { return Parse([]byte(src), "input.hcl", nil) })
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("values differ from Nomad's (-nomad +ours):\n%s", diff)
	}
}

func TestExpressionsLikeNomad(t *testing.T) {
	client := nomadServer(t)
	want := evaluate(func(src string) (*api.Job, error) { return client.Jobs().ParseHCL(src, false) })
	if *update {
		b, err := json.MarshalIndent(want, "", "  ")
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(recordedExpressions, append(b, '\n'), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got := evaluate(func(src string) (*api.Job, error) { return Parse([]byte(src), "input.hcl", nil) })
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("values differ from Nomad's (-nomad +ours):\n%s", diff)
	}
}
