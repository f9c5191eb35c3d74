package audit_test

import "context"

// ctx is a test's, of either kind.
func ctx(t any) context.Context {
	if t, ok := t.(interface{ Context() context.Context }); ok {
		return t.Context()
	}
	return context.Background()
}
