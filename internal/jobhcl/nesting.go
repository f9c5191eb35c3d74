package jobhcl

import (
	"fmt"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
)

// The HCL parser is recursive and a Go stack that overflows ends the process,
// so that what could nest without end is bounded before it is parsed. Real
// job files stay far below.
const (
	maxSourceBytes  = 1 << 20
	maxNesting      = 200
	maxConditionals = 2000
)

// checkNesting refuses a text that is too large or nests too deeply to parse.
func checkNesting(src []byte, filename string) hcl.Diagnostics {
	if len(src) > maxSourceBytes {
		return hcl.Diagnostics{tooLarge(hcl.Range{Filename: filename, Start: hcl.InitialPos, End: hcl.InitialPos},
			fmt.Sprintf("The file has %d bytes; at most %d are read.", len(src), maxSourceBytes))}
	}
	// Lexical faults are found again by the parser, with better words.
	tokens, _ := hclsyntax.LexConfig(src, filename, hcl.InitialPos)
	depth, unary, conditionals := 0, 0, 0
	for _, t := range tokens {
		switch t.Type {
		case hclsyntax.TokenBang, hclsyntax.TokenMinus:
			unary++
		default:
			unary = 0
		}
		switch t.Type {
		case hclsyntax.TokenOBrace, hclsyntax.TokenOParen, hclsyntax.TokenOBrack,
			hclsyntax.TokenTemplateInterp, hclsyntax.TokenTemplateControl, hclsyntax.TokenOQuote, hclsyntax.TokenOHeredoc:
			depth++
		case hclsyntax.TokenCBrace, hclsyntax.TokenCParen, hclsyntax.TokenCBrack,
			hclsyntax.TokenTemplateSeqEnd, hclsyntax.TokenCQuote, hclsyntax.TokenCHeredoc:
			depth--
		case hclsyntax.TokenQuestion:
			conditionals++
		}
		if depth > maxNesting || unary > maxNesting || conditionals > maxConditionals {
			return hcl.Diagnostics{tooLarge(t.Range,
				fmt.Sprintf("Blocks and expressions may nest %d deep, and a file may hold %d conditionals.", maxNesting, maxConditionals))}
		}
	}
	return nil
}

func tooLarge(at hcl.Range, detail string) *hcl.Diagnostic {
	return &hcl.Diagnostic{Severity: hcl.DiagError, Summary: "Job file too large", Detail: detail, Subject: at.Ptr()}
}
