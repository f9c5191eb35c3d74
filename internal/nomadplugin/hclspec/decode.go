package hclspec

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hcldec"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	hcljson "github.com/hashicorp/hcl/v2/json"
	"github.com/zclconf/go-cty/cty"
	"github.com/zclconf/go-cty/cty/function"
	"github.com/zclconf/go-cty/cty/function/stdlib"
	"github.com/zclconf/go-cty/cty/msgpack"
)

// Encode reads an HCL body, such as that of an agent's plugin config block, by
// the spec and returns it in msgpack, ready to be sent to the plugin. The file
// name stands in errors, which list every fault.
func Encode(spec *Spec, src []byte, filename string) ([]byte, error) {
	file, diags := hclsyntax.ParseConfig(src, filename, hcl.InitialPos)
	if diags.HasErrors() {
		return nil, fmt.Errorf("parse configuration: %w", join(diags))
	}
	return encode(spec, file.Body, nil)
}

// EncodeMap is Encode for a body that was parsed into plain values before, as
// the Config of a task in Nomad's API is: blocks are maps, repeated blocks are
// lists of maps. Strings may hold "${…}" references to vars.
func EncodeMap(spec *Spec, config map[string]any, vars map[string]cty.Value) ([]byte, error) {
	if config == nil {
		config = map[string]any{}
	}
	src, err := json.Marshal(config)
	if err != nil {
		return nil, fmt.Errorf("encode configuration: %w", err)
	}
	file, diags := hcljson.Parse(src, "config")
	if diags.HasErrors() {
		return nil, fmt.Errorf("parse configuration: %w", join(diags))
	}
	return encode(spec, file.Body, vars)
}

func encode(spec *Spec, body hcl.Body, vars map[string]cty.Value) ([]byte, error) {
	dec, err := Convert(spec)
	if err != nil {
		return nil, err
	}
	value, diags := hcldec.Decode(body, dec, &hcl.EvalContext{Variables: vars, Functions: functions()})
	if diags.HasErrors() {
		return nil, fmt.Errorf("read configuration: %w", join(diags))
	}
	data, err := msgpack.Marshal(value, value.Type())
	if err != nil {
		return nil, fmt.Errorf("encode configuration: %w", err)
	}
	return data, nil
}

// join keeps every fault; Diagnostics' own Error tells the first only.
func join(diags hcl.Diagnostics) error {
	return errors.Join(diags.Errs()...)
}

// functions are those that Nomad offers in plugin and task configurations.
func functions() map[string]function.Function {
	return map[string]function.Function{
		"abs":        stdlib.AbsoluteFunc,
		"coalesce":   stdlib.CoalesceFunc,
		"concat":     stdlib.ConcatFunc,
		"hasindex":   stdlib.HasIndexFunc,
		"int":        stdlib.IntFunc,
		"jsondecode": stdlib.JSONDecodeFunc,
		"jsonencode": stdlib.JSONEncodeFunc,
		"length":     stdlib.LengthFunc,
		"lower":      stdlib.LowerFunc,
		"max":        stdlib.MaxFunc,
		"min":        stdlib.MinFunc,
		"reverse":    stdlib.ReverseFunc,
		"strlen":     stdlib.StrlenFunc,
		"substr":     stdlib.SubstrFunc,
		"upper":      stdlib.UpperFunc,
	}
}
