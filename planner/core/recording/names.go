package recording

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/caravan-sched/caravan/planner/core/topo"
)

// kind is what a string names. Names of one kind are told apart and compared
// with each other, so they are renamed together.
type kind string

// The kinds. keep is what says nothing of anybody: hardware, and Caravan's own
// words.
const (
	keep        kind = ""
	hidden      kind = "hidden" // free text, whose words decide nothing
	alloc       kind = "alloc"
	class       kind = "class"
	dataSet     kind = "data"
	datacenter  kind = "dc"
	gpu         kind = "GPU"
	group       kind = "group"
	job         kind = "job"
	level       kind = "domain"
	namespace   kind = "namespace"
	node        kind = "node"
	nodeID      kind = "id"
	pool        kind = "pool"
	queuePath   kind = "queue"
	storage     kind = "storage"
	task        kind = "task"
	reservation kind = "reservation"
	buyPool     kind = "buy"
	purchase    kind = "purchase"
	bought      kind = "bought"
)

// rules say what the strings of a snapshot are, by type and field; KEY is what
// the keys of a map are. What is not listed is hidden, and a test asks for it.
var rules = map[string]kind{
	"Snapshot.Levels": keep,
	"Policy.Order":    keep, "Backfill.Mode": keep, "Replace.SparesPer": keep, "Interactive.Classes": class, "Interactive.Queues": queuePath,
	"Node.ID": nodeID, "Node.Name": node, "Node.Datacenter": datacenter, "Node.Pool": pool, "Node.Class": class,
	"Node.Attributes": keep, "Node.Attributes KEY": keep, // made anew
	"Node.Levels": level, "Node.Levels KEY": keep, "Node.Unschedulable": hidden,
	"GPU.UUID": gpu, "GPU.Parent": gpu, "GPU.Vendor": keep, "GPU.Type": keep, "GPU.Model": keep,
	"GPU.Attributes": keep, "GPU.Attributes KEY": keep, // made anew
	"GPU.Unhealthy": hidden, "Link.Kind": keep,
	"Alloc.ID": alloc, "Alloc.Namespace": namespace, "Alloc.Job": job, "Alloc.Group": group, "Alloc.Node": nodeID, "Alloc.GPUs": gpu,
	"Job.Namespace": namespace, "Job.ID": job, "Job.Type": keep, "Job.State": keep, "Job.Hold": hidden, "Job.RetryFor": hidden,
	"Job.PriorityClass": class, "Job.Queue": queuePath, "Job.Region": level, "Job.Datacenters": datacenter, "Job.Pool": pool,
	"Job.Gang": keep, "Job.Preempt": keep, "Job.Move": keep, "Topology.Mode": keep, "Topology.Level": keep,
	"Job.CheckpointStorage": storage, "Storage.Name": storage,
	"TaskGroup.Name": group, "DeviceAsk.Task": task, "DeviceAsk.Name": keep, "DeviceAsk.Shared": keep,
	"Constraint.Left": keep, "Constraint.Operand": keep, "Constraint.Right": keep, // made anew
	"Member.Group": group, "Member.Node": nodeID, "Member.GPUs": gpu, "Member.Tasks": gpu,
	"ModelSpeed.Name": keep, "Job.RanByModel KEY": keep, "Slice.Level": keep, "Job.Collective": keep, "Job.Regions": level, "Job.Data": dataSet,
	"Region.Name": level, "Region.Price KEY": keep, "Region.Data": dataSet,
	"FailedPlace.Group": group, "FailedPlace.Node": nodeID, "FailedPlace.Why": hidden,
	"Job.KeepSize": hidden, "Speed.Unit": keep, "SpeedSample.Model": keep, "SpeedSample.Level": keep,
	"Reservation.Name": reservation, "Reservation.Kind": keep, "Reservation.Nodes": nodeID, "Reservation.Level": keep,
	"Promised.Level": keep, "Promised.Domain": level,
	"Reservation.Domain": level, "Reservation.Queue": queuePath,
	"JobName.Namespace": namespace, "JobName.ID": job,
	"Preempted.Namespace": namespace, "Preempted.By": job, "Preempted.ByGroup": group, "Preempted.Group": group,
	"Division.GPU": gpu, "Division.Profiles": keep, "Division.State": keep, "Division.Why": hidden,
	"Moving.Namespace": namespace, "Moving.For": job, "Moving.Group": group,
	"Queue.Path": queuePath, "Queue.Guarantee KEY": keep, "Queue.Borrow KEY": keep, "Queue.PerUser KEY": keep,
	"Bought.Pool": buyPool, "Bought.Name": bought, "Bought.Purchase": purchase, "Bought.Market": keep, "Bought.Surplus": hidden,
	"Burst.Currency": keep, "Burst.Hold": hidden, "BuyPool.Name": buyPool, "BuyPool.Near": keep, "BuyPool.Data": dataSet, "DataSet.Name": dataSet,
	"Purchase.ID": purchase, "Purchase.Pool": buyPool, "Purchase.Market": keep, "Purchase.Names": bought, "Purchase.State": keep,
	"Purchase.Why": hidden, "Purchase.Leaving": bought, "Purchase.Gone": bought, "Spent.Queue": queuePath,
	"BlockedPool.Pool": buyPool, "BlockedPool.Market": keep, "BlockedPool.Why": hidden,
	"Job.Burst": keep, "Queue.Burst": keep, "Policy.Default": keep,
	"Queue.Priorities KEY": class, "Queue.Reclaim": keep, "Queue.ReclaimFrom": queuePath, "Queue.History KEY": keep,
}

// reserved are names that mean something by themselves.
var reserved = map[kind][]string{
	pool: {"all"}, level: {"global"},
}

// walk visits every string below a value that is not kept, and puts in its place
// what f returns.
func walk(v reflect.Value, at string, f func(kind, string) string) {
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			walk(v.Elem(), at, f)
		}
	case reflect.Slice:
		for i := range v.Len() {
			walk(v.Index(i), at, f)
		}
	case reflect.Struct:
		if v.Type().PkgPath() == "time" {
			return
		}
		for i := range v.NumField() {
			walk(v.Field(i), v.Type().Name()+"."+v.Type().Field(i).Name, f)
		}
	case reflect.Map:
		walkMap(v, at, f)
	case reflect.String:
		if v.Len() > 0 {
			v.SetString(named(at, v.String(), f))
		}
	}
}

func walkMap(v reflect.Value, at string, f func(kind, string) string) {
	if v.IsNil() {
		return
	}
	out := reflect.MakeMapWithSize(v.Type(), v.Len())
	for _, key := range v.MapKeys() {
		value := reflect.New(v.Type().Elem()).Elem()
		value.Set(v.MapIndex(key))
		walk(value, at, f)
		renamed := reflect.New(v.Type().Key()).Elem()
		renamed.SetString(named(at+" KEY", key.String(), f))
		out.SetMapIndex(renamed, value)
	}
	v.Set(out)
}

func named(at, text string, f func(kind, string) string) string {
	k, known := rules[at]
	switch {
	case !known || k == hidden:
		return string(hidden)
	case k == keep || slices.Contains(reserved[k], text):
		return text
	}
	return f(k, text)
}

// names gives names new ones that sort like the old ones, since equals are
// ordered by name.
type names map[kind]map[string]string

// collect lists all names below some values.
func collect(values ...reflect.Value) names {
	n := names{}
	for _, v := range values {
		walk(v, "", func(k kind, text string) string {
			if n[k] == nil {
				n[k] = map[string]string{}
			}
			for _, part := range parts(k, text) {
				n[k][part] = ""
			}
			return text
		})
	}
	for k, table := range n {
		sorted := make([]string, 0, len(table))
		for text := range table {
			sorted = append(sorted, text)
		}
		slices.Sort(sorted)
		if k == level || k == node {
			slices.SortStableFunc(sorted, topo.CompareNatural)
		}
		width := len(fmt.Sprint(len(sorted)))
		for i, text := range sorted {
			table[text] = fmt.Sprintf("%s-%0*d", k, width, i+1)
		}
	}
	return n
}

// parts are the names that a name is made of.
func parts(k kind, text string) []string {
	if k == queuePath {
		return strings.Split(text, "/")
	}
	return []string{text}
}

func (n names) rename(k kind, text string) string {
	var out []string
	for _, part := range parts(k, text) {
		out = append(out, n[k][part])
	}
	return strings.Join(out, "/")
}
