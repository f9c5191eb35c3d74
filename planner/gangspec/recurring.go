package gangspec

import "regexp"

// made matches what Nomad puts behind the ID of a job that it makes of another
// one, and what people and pipelines put behind a name to tell one run from the
// next: dates and times, numbers of four digits and more, and UUIDs. Shorter
// numbers are parts of names ("resnet-50").
var made = regexp.MustCompile(`(?i)(/(periodic|dispatch)-[^/]*|[-_.:T/]?[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}|[-_.:T]?[0-9]{4,}(([-_.:T][0-9]{1,2}){1,5}Z?)?)$`)

// Recurring is the name under which runs of one job are the same: its ID without
// what tells them apart. Jobs of one name are expected to work alike.
func Recurring(id string) string {
	for {
		at := made.FindStringIndex(id)
		if at == nil || at[0] == 0 {
			return id
		}
		id = id[:at[0]]
	}
}
