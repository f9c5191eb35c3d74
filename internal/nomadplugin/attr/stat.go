package attr

// Stat is one statistic: a number, or a fraction of two numbers, or a text or
// boolean. What is nil is not reported.
type Stat struct {
	Int, IntOf     *int64
	Float, FloatOf *float64
	Text           *string
	Bool           *bool
	// Unit is for people ("MiB", "%", "W", "C"); any text will do.
	Unit string
	// Description says what the number is.
	Description string
}
