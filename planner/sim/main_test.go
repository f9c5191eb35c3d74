package sim

import (
	"os"
	"testing"
)

func TestMain(m *testing.M) {
	trusts = false
	os.Exit(m.Run())
}
