package differ

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
)

// nowhere is the ID of nothing.
const nowhere = "00000000-0000-4000-8000-000000000000"

// odd are requests that are refused, or do nothing: about what is not there,
// with values out of range, by methods that a path does not have. JOB stands
// for a job's ID, NODE for a node's.
var odd = []struct{ method, path, body string }{
	{"GET", "/v1/job/nothing", ""},
	{"GET", "/v1/job/nothing/summary", ""},
	{"GET", "/v1/job/nothing/versions", ""},
	{"GET", "/v1/job/nothing/allocations", ""},
	{"GET", "/v1/job/nothing/evaluations", ""},
	{"GET", "/v1/job/nothing/deployment", ""},
	{"GET", "/v1/job/nothing/deployments", ""},
	{"GET", "/v1/job/nothing/scale", ""},
	{"GET", "/v1/job/nothing/submission?version=0", ""},
	{"DELETE", "/v1/job/nothing?purge=maybe", ""},
	{"PUT", "/v1/job/nothing/evaluate", `{"JobID": "nothing"}`},
	{"PUT", "/v1/job/nothing/evaluate", `{"JobID": "something"}`},
	{"PUT", "/v1/job/nothing/revert", `{"JobID": "nothing", "JobVersion": 1}`},
	{"PUT", "/v1/job/nothing/stable", `{"JobID": "nothing", "JobVersion": 1, "Stable": true}`},
	{"PUT", "/v1/job/nothing/dispatch", `{"JobID": "nothing"}`},
	{"PUT", "/v1/job/nothing/plan", `{}`},
	{"PUT", "/v1/job/nothing/scale", `{"Count": 1, "Target": {"Group": "g0"}}`},
	{"PUT", "/v1/job/nothing/versions/x/tag", `{"Version": 0}`},
	{"PUT", "/v1/job/nothing/periodic/force", ``},
	{"PUT", "/v1/job/JOB/scale", `{"Count": -1, "Target": {"Group": "g0"}}`},
	{"PUT", "/v1/job/JOB/scale", `{"Count": 1, "Target": {"Group": "none"}}`},
	{"PUT", "/v1/job/JOB/scale", `{"Count": 1}`},
	{"PUT", "/v1/job/JOB/revert", `{"JobID": "JOB", "JobVersion": 99}`},
	{"PUT", "/v1/job/JOB/revert", `{"JobID": "JOB", "JobVersion": 0, "EnforcePriorVersion": 99}`},
	{"PUT", "/v1/job/JOB/stable", `{"JobID": "JOB", "JobVersion": 99, "Stable": true}`},
	{"PUT", "/v1/job/JOB/versions/x/tag", `{"Version": 99}`},
	{"DELETE", "/v1/job/JOB/versions/x/tag", ``},
	{"PUT", "/v1/job/JOB/dispatch", `{"JobID": "JOB"}`},
	{"PUT", "/v1/job/JOB/periodic/force", ``},
	{"PUT", "/v1/job/JOB/plan", `{"Job": {"ID": "another"}}`},
	{"PATCH", "/v1/job/JOB", ``},
	{"PUT", "/v1/jobs", `{`},
	{"PUT", "/v1/jobs", `{}`},
	{"PUT", "/v1/jobs", `{"Job": {}}`},
	{"PUT", "/v1/jobs", `{"Job": {"ID": "a b"}}`},
	{"PUT", "/v1/jobs", `{"Job": {"ID": "new", "Type": "batch", "TaskGroups": [{"Name": "g"}]}}`},
	{"PUT", "/v1/jobs", `{"Job": {"ID": "new", "Type": "batch", "Priority": 1000, "TaskGroups": [{"Name": "g", "Count": -1}, {"Name": "g"}]}}`},
	{"PUT", "/v1/jobs", `{"EnforceIndex": true, "JobModifyIndex": 3, "Job": {"ID": "new", "Type": "batch", "TaskGroups": [{"Name": "g", "Tasks": [{"Name": "t", "Driver": "raw_exec", "Config": {"command": "true"}}]}]}}`},
	{"PUT", "/v1/jobs", `{"Job": {"ID": "new", "Namespace": "none", "Type": "batch", "TaskGroups": [{"Name": "g", "Tasks": [{"Name": "t", "Driver": "raw_exec", "Config": {"command": "true"}}]}]}}`},
	{"PUT", "/v1/jobs", `{"Job": {"ID": "new", "NodePool": "none", "Type": "batch", "TaskGroups": [{"Name": "g", "Tasks": [{"Name": "t", "Driver": "raw_exec", "Config": {"command": "true"}}]}]}}`},
	{"GET", "/v1/allocation/" + nowhere, ""},
	{"GET", "/v1/allocation/short", ""},
	{"GET", "/v1/evaluation/short", ""},
	{"GET", "/v1/deployment/short", ""},
	{"GET", "/v1/node/short", ""},
	{"PUT", "/v1/node/short/eligibility", `{"Eligibility": "eligible"}`},
	{"PUT", "/v1/allocation/short/stop", ""},
	{"PUT", "/v1/allocation/" + nowhere + "/stop", ""},
	{"PUT", "/v1/client/allocation/" + nowhere + "/restart", `{}`},
	{"PUT", "/v1/client/allocation/" + nowhere + "/signal", `{"Signal": "SIGHUP"}`},
	{"GET", "/v1/client/allocation/" + nowhere + "/stats", ""},
	{"GET", "/v1/client/fs/logs/" + nowhere + "?task=main&type=stdout", ""},
	{"GET", "/v1/client/fs/ls/" + nowhere + "?path=/", ""},
	{"GET", "/v1/evaluation/" + nowhere, ""},
	{"GET", "/v1/evaluation/" + nowhere + "/allocations", ""},
	{"GET", "/v1/deployment/" + nowhere, ""},
	{"GET", "/v1/deployment/allocations/" + nowhere, ""},
	{"PUT", "/v1/deployment/fail/" + nowhere, ""},
	{"PUT", "/v1/deployment/promote/" + nowhere, `{"DeploymentID": "` + nowhere + `", "All": true}`},
	{"PUT", "/v1/deployment/pause/" + nowhere, `{"DeploymentID": "` + nowhere + `", "Pause": true}`},
	{"GET", "/v1/node/" + nowhere, ""},
	{"GET", "/v1/node/" + nowhere + "/allocations", ""},
	{"PUT", "/v1/node/" + nowhere + "/drain", `{"DrainSpec": {"Deadline": 1}}`},
	{"PUT", "/v1/node/" + nowhere + "/eligibility", `{"Eligibility": "eligible"}`},
	{"PUT", "/v1/node/NODE/eligibility", `{"Eligibility": "maybe"}`},
	{"PUT", "/v1/node/NODE/drain", `{`},
	{"PUT", "/v1/node/" + nowhere + "/evaluate", ""},
	{"PUT", "/v1/node/" + nowhere + "/purge", ""},
	{"GET", "/v1/namespace/none", ""},
	{"DELETE", "/v1/namespace/none", ""},
	{"DELETE", "/v1/namespace/default", ""},
	{"GET", "/v1/node/pool/none", ""},
	{"GET", "/v1/var/caravan/nothing", ""},
	{"PUT", "/v1/var/caravan/x", `{"Path": "caravan/x", "Items": {}}`},
	{"PUT", "/v1/var/caravan/x", `{"Path": "caravan/y", "Items": {"a": "b"}}`},
	{"PUT", "/v1/var/caravan/x?cas=77", `{"Path": "caravan/x", "Items": {"a": "b"}}`},
	{"GET", "/v1/jobs?filter=Nonsense", ""},
	{"GET", "/v1/jobs?index=x", ""},
	{"GET", "/v1/jobs?per_page=x", ""},
	{"GET", "/v1/nothing", ""},
	{"PUT", "/v1/jobs/parse", `{"JobHCL": "job \"x\" {"}`},
	{"PUT", "/v1/validate/job", `{"Job": {"ID": "x"}}`},
	{"PUT", "/v1/operator/scheduler/configuration", `{"SchedulerAlgorithm": "best"}`},
}

// askOddly makes all the odd requests and tells what was said.
func (w *world) askOddly(job string) (string, error) {
	var lines []string
	replace := strings.NewReplacer("JOB", w.id(job), "NODE", w.nodes[0].id)
	for _, r := range odd {
		req, err := http.NewRequest(r.method, w.c.Address()+replace.Replace(r.path), strings.NewReader(replace.Replace(r.body)))
		if err != nil {
			return "", err
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			return "", err
		}
		body, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil {
			return "", err
		}
		text := fields(body)
		if resp.StatusCode == http.StatusOK && len(text) > 60 {
			text = "…"
		}
		lines = append(lines, fmt.Sprintf("%s %s %s: %d %s", r.method, r.path, r.body, resp.StatusCode, strings.ReplaceAll(text, "\n", "\\n")))
	}
	return strings.Join(lines, "\n"), nil
}

// fields is an answer as it is, or an object's fields: their order and times
// are the encoder's and the day's.
func fields(body []byte) string {
	var object map[string]any
	if json.Unmarshal(body, &object) == nil {
		return strings.Join(sortedKeys(object), ", ")
	}
	return strings.TrimSpace(string(body))
}
