package ulimit

import "testing"

func TestParse(t *testing.T) {
	tests := map[string]struct {
		soft, hard uint64
		wantErr    bool
	}{
		"1024":                 {soft: 1024, hard: 1024},
		"1024:2048":            {soft: 1024, hard: 2048},
		"unlimited":            {soft: Unlimited, hard: Unlimited},
		"0:unlimited":          {hard: Unlimited},
		"-1":                   {soft: Unlimited, hard: Unlimited},
		" 5 : 6 ":              {soft: 5, hard: 6},
		"unlimited:5":          {wantErr: true},
		"6:5":                  {wantErr: true},
		"":                     {wantErr: true},
		":":                    {wantErr: true},
		"1:2:3":                {wantErr: true},
		"1k":                   {wantErr: true},
		"-2":                   {wantErr: true},
		"99999999999999999999": {wantErr: true},
	}
	for value, test := range tests {
		soft, hard, err := Parse(value)
		if soft != test.soft || hard != test.hard || (err != nil) != test.wantErr {
			t.Errorf("%q: %d, %d, %v", value, soft, hard, err)
		}
	}
}

func FuzzParse(f *testing.F) {
	for _, seed := range []string{"1024", "1:2", "unlimited", "2:1", ":", "-1", "infinity:infinity"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, value string) {
		soft, hard, err := Parse(value)
		if err != nil {
			return
		}
		if soft > hard {
			t.Errorf("%q: soft %d above hard %d", value, soft, hard)
		}
		if again, more, err := Parse(Text(soft) + ":" + Text(hard)); err != nil || again != soft || more != hard {
			t.Errorf("%q: %d:%d became %d:%d, %v", value, soft, hard, again, more, err)
		}
	})
}
