package trace

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"
)

func TestFormats(t *testing.T) {
	tests := map[string]struct {
		o       Options
		text    string
		want    []Job
		wantRep Report
		wantErr string
	}{
		"itp, in any order": {
			o: Options{Format: "itp"}, text: "job_id,submission_time,duration,num_gpu\nb,20,100,8\na,10,50.5,1\n",
			want: []Job{{ID: "a", Submit: 10, Duration: 50.5, GPUs: 1}, {ID: "b", Submit: 20, Duration: 100, GPUs: 8}}, wantRep: Report{Rows: 2, Jobs: 2},
		},
		"itp's test bed": {
			o: Options{Format: "itp"}, text: "job_id,submission_time,num_iteration,model_name,deadline,batch_size,num_gpu,duration\na,10,9,bert,99,32,1,50\n",
			want: []Job{{ID: "a", Submit: 10, Duration: 50, GPUs: 1, Model: "bert", Deadline: 99}}, wantRep: Report{Rows: 1, Jobs: 1},
		},
		"minutes": {
			o: Options{Format: "itp", Unit: 60}, text: "job_id,submission_time,duration,num_gpu\na,1,2,1\n",
			want: []Job{{ID: "a", Submit: 60, Duration: 120, GPUs: 1}}, wantRep: Report{Rows: 1, Jobs: 1},
		},
		"gavel": {
			o: Options{Format: "gavel", Throughputs: map[string]float64{"('LM (batch size 5)', 2)": 4, "('A3C', 1)": 0}}, text: "vc1\tLM (batch size 5)\tcd\t-n\t1\t400\t6.5\t2\nvc1\tLM (batch size 5)\tcd\t-n\t1\t400\t7\t4\nvc1\tA3C\tcd\t-n\t1\t400\t7\t1\n",
			want:    []Job{{ID: "1", Submit: 6.5, Duration: 100, GPUs: 2, Model: "LM (batch size 5)", Queue: "vc1"}},
			wantRep: Report{Rows: 3, Jobs: 1, Left: map[string]int{"no throughput was measured for its type and number of GPUs": 1, "the throughput measured for it is 0: it did not fit into memory": 1}, FirstLeft: "line 2: no throughput was measured for its type and number of GPUs"},
		},
		"gavel without throughputs": {o: Options{Format: "gavel"}, text: "x", wantErr: "needs the file of throughputs"},
		"openb": {
			o: Options{Format: "openb"}, text: "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time\na,1,1,1,460,,LS,Running,10,100,20\nb,1,1,0,0,,BE,Running,10,100,20\nc,1,1,2,1000,V100M32|V100M16,BE,Running,10,100,\n",
			want: []Job{{ID: "a", Submit: 10, Duration: 80, GPUs: 1, Queue: "LS", Share: 0.46}}, wantRep: Report{Rows: 3, Jobs: 1, Left: map[string]int{"it asks for no GPU": 1, "it was never scheduled": 1}, FirstLeft: "line 3: it asks for no GPU"},
		},
		"openb's models": {
			o: Options{Format: "openb"}, text: "name,num_gpu,gpu_spec,creation_time,deletion_time,scheduled_time\na,1,V100M16|V100M32,10,100,20\nb,1,T4|,10,100,20\n",
			want: []Job{{ID: "a", Submit: 10, Duration: 80, GPUs: 1, GPUModels: "V100M16|V100M32"}}, wantRep: Report{Rows: 2, Jobs: 1, Broken: 1, First: "line 3: gpu_spec \"T4|\": want names of GPU models with a | between them, at most 32"},
		},
		"names that are no UTF-8": {
			o: Options{Format: "csv"}, text: "job,submit_s,duration_s,gpus,model,queue\ncaf\xe9,0,60,8,\xff\xfem,caf\u00e9\n", want: []Job{{ID: "caf\ufffd", Duration: 60, GPUs: 8, Model: "\ufffdm", Queue: "caf\u00e9"}}, wantRep: Report{Rows: 1, Jobs: 1},
		},
		"our own models": {
			o: Options{Format: "csv"}, text: "job,submit_s,duration_s,gpus,gpu_models\na,0,60,8,A100|NVIDIA H100 80GB HBM3\n", want: []Job{{ID: "a", Duration: 60, GPUs: 8, GPUModels: "A100|NVIDIA H100 80GB HBM3"}}, wantRep: Report{Rows: 1, Jobs: 1},
		},
		"sacct": {
			o: Options{Format: "sacct"}, text: "JobID|JobName|Account|Submit|Elapsed|AllocTRES\n7|train|phys|2031-05-17T12:00:00|1-02:03:04|billing=8,cpu=8,gres/gpu:a100=8,gres/gpu=8\n7.batch|batch|phys|2031-05-17T12:00:00|00:10:00|cpu=8\n8|cpu|phys|2031-05-17T12:00:00|00:10:00|cpu=8\n9|x|phys|Unknown|00:10:00|gres/gpu=1\n",
			want:    []Job{{ID: "7", Submit: 1936785600 - 12*3600 + 12*3600, Duration: 86400 + 2*3600 + 3*60 + 4, GPUs: 8, Queue: "phys", Model: "train"}},
			wantRep: Report{Rows: 4, Jobs: 1, Broken: 1, First: "line 5: Submit \"Unknown\": want a time such as 2031-05-17T12:00:00", Left: map[string]int{"it is a step of a job": 1, "it has no GPU": 1}, FirstLeft: "line 3: it is a step of a job"},
		},
		"Slurm's shards": {
			o: Options{Format: "sacct", Shards: 4}, text: "JobID|Submit|ElapsedRaw|AllocTRES\n1|1970-01-01T00:00:07|60|cpu=1,gres/shard=1\n2|1970-01-01T00:00:07|60|gres/shard=4\n3|1970-01-01T00:00:07|60|gres/shard=5\n4|1970-01-01T00:00:07|60|gres/gpu=2,gres/shard=8\n5|1970-01-01T00:00:07|60|gres/mps=50\n6|1970-01-01T00:00:07|60|shard:3\n",
			want:    []Job{{ID: "1", Submit: 7, Duration: 60, GPUs: 1, Share: 0.25}, {ID: "2", Submit: 7, Duration: 60, GPUs: 1}, {ID: "3", Submit: 7, Duration: 60, GPUs: 2}, {ID: "4", Submit: 7, Duration: 60, GPUs: 2}, {ID: "6", Submit: 7, Duration: 60, GPUs: 1, Share: 0.75}},
			wantRep: Report{Rows: 6, Jobs: 5, Left: map[string]int{"it has a part of a GPU by MPS (gres/mps), which is not modelled": 1}, FirstLeft: "line 6: it has a part of a GPU by MPS (gres/mps), which is not modelled"},
		},
		"Slurm's shards of an unknown size": {
			o: Options{Format: "sacct"}, text: "JobID|Submit|ElapsedRaw|AllocTRES\n1|1970-01-01T00:00:07|60|gres/shard=1\n2|1970-01-01T00:00:07|60|gres/gpu=1\n",
			want:    []Job{{ID: "2", Submit: 7, Duration: 60, GPUs: 1}},
			wantRep: Report{Rows: 2, Jobs: 1, Left: map[string]int{"it has a part of a GPU (gres/shard): say with --shards-per-gpu how many a GPU has": 1}, FirstLeft: "line 2: it has a part of a GPU (gres/shard): say with --shards-per-gpu how many a GPU has"},
		},
		"Slurm's MIG instances": {
			o: Options{Format: "sacct"}, text: "JobID|Submit|ElapsedRaw|AllocTRES\n1|1970-01-01T00:00:07|60|gres/gpu:a100_3g.20gb=1,gres/gpu=1\n2|1970-01-01T00:00:07|60|gpu:1g.10gb:1\n3|1970-01-01T00:00:07|60|gres/gpu:1g.5gb=2,gres/gpu=2\n4|1970-01-01T00:00:07|60|gres/gpu:h100=1,gres/gpu:h100_1g.10gb=1,gres/gpu=2\n5|1970-01-01T00:00:07|60|gres/gpu:nvidia_h100_80gb_hbm3_2g.20gb=1\n",
			want:    []Job{{ID: "1", Submit: 7, Duration: 60, GPUs: 1, Profile: "3g.20gb"}, {ID: "2", Submit: 7, Duration: 60, GPUs: 1, Profile: "1g.10gb"}, {ID: "5", Submit: 7, Duration: 60, GPUs: 1, Profile: "2g.20gb"}},
			wantRep: Report{Rows: 5, Jobs: 3, Left: map[string]int{"it has a MIG instance and more: a job has one, or whole GPUs": 2}, FirstLeft: "line 4: it has a MIG instance and more: a job has one, or whole GPUs"},
		},
		"a mark and quotes":          {o: Options{Format: "csv"}, text: "\ufeff\"job\",\"gpus\",\"submit_s\",\"duration_s\"\r\n\"a\",\"8\",\"0\",\"60\"\r\n  \r\n", want: []Job{{ID: "a", Duration: 60, GPUs: 8}}, wantRep: Report{Rows: 1, Jobs: 1}},
		"deadlines of another clock": {o: Options{Format: "csv"}, text: "job,submit_s,duration_s,gpus,deadline_s\na,1000,60,8,90\nb,1000,60,8,1090\nc,-9,60,8,-9\n", want: []Job{{ID: "b", Submit: 1000, Duration: 60, GPUs: 8, Deadline: 1090}}, wantRep: Report{Rows: 3, Jobs: 1, Broken: 2, First: "line 2: deadline_s 90 s: want a time after submit_s, 1000 s, on the same clock"}},
		"Slurm's times": {
			o: Options{Format: "sacct"}, text: "Submit|ElapsedRaw|JobIDRaw|AllocTRES\n1970-01-01T02:00:07+0200|60|1|gres/gpu=1\n1970-01-01T00:00:07Z|60|2|gres/gpu=1\n7|60|3|gres/gpu=1\n1970-01-01 00:00:07|60|4|gres/gpu=1\n1970-01-01T02:00:07.25+02:00|60|5|gres/gpu=1\nUnknown|60|6|gres/gpu=1\n-7|60|7|gres/gpu=1\n",
			want:    []Job{{ID: "1", Submit: 7, Duration: 60, GPUs: 1}, {ID: "2", Submit: 7, Duration: 60, GPUs: 1}, {ID: "3", Submit: 7, Duration: 60, GPUs: 1}, {ID: "4", Submit: 7, Duration: 60, GPUs: 1}, {ID: "5", Submit: 7.25, Duration: 60, GPUs: 1}},
			wantRep: Report{Rows: 7, Jobs: 5, Broken: 2, First: "line 7: Submit \"Unknown\": want a time such as 2031-05-17T12:00:00"},
		},
		"Slurm's arrays, heterogeneous jobs and requeued ones": {
			o: Options{Format: "sacct"}, text: "JobID|Submit|Elapsed|AllocTRES|State\n1_1|1970-01-01T00:00:07|1-00:00:01|cpu=8,gres/gpu=1|COMPLETED\n1_1.batch|1970-01-01T00:00:07|00:01:00|cpu=8,gres/gpu=1|COMPLETED\n1_[2-9]|1970-01-01T00:00:07|00:00:00||PENDING\n2+0|1970-01-01T00:00:07|00:01:00|gres/gpu=1|COMPLETED\n2+1|1970-01-01T00:00:07|00:01:00|gres/gpu=8|COMPLETED\n3|1970-01-01T00:00:07|00:01:00|gres/gpu=1|NODE_FAIL\n3|1970-01-01T00:00:09|02:00|gres/gpu=1|CANCELLED by 7\n",
			want:    []Job{{ID: "1_1", Submit: 7, Duration: 86401, GPUs: 1}, {ID: "2", Submit: 7, Duration: 60, GPUs: 9}, {ID: "3", Submit: 7, Duration: 60, GPUs: 1}, {ID: "3#4", Submit: 9, Duration: 120, GPUs: 1}},
			wantRep: Report{Rows: 7, Jobs: 4, Joined: 1, Left: map[string]int{"it is a step of a job": 1, "it has no GPU": 1}, FirstLeft: "line 3: it is a step of a job"},
		},
		"Slurm's components with steps, without GPUs, and apart": {
			o: Options{Format: "sacct"}, text: "JobID|Submit|ElapsedRaw|AllocTRES\n" + strings.Join([]string{"1+0|7|60|cpu=8", "1+1|7|60|gres/gpu=8", "1+1.batch|7|60|gres/gpu=8", "1+2|7|90|gres/gpu=4", "4+1|7|60|gres/gpu=2", "4+0|6|60|gres/gpu=1", "2+0|8|60|gres/gpu=1", "5|9|60|gres/gpu=1", "2+1|9|60|gres/gpu=2", "2+2|9|60|gres/gpu=3", "6+0|10|60|gres/gpu=1"}, "\n"),
			want:    []Job{{ID: "4", Submit: 6, Duration: 60, GPUs: 3}, {ID: "1", Submit: 7, Duration: 90, GPUs: 12}, {ID: "2+0", Submit: 8, Duration: 60, GPUs: 1}, {ID: "2", Submit: 9, Duration: 60, GPUs: 5}, {ID: "5", Submit: 9, Duration: 60, GPUs: 1}, {ID: "6+0", Submit: 10, Duration: 60, GPUs: 1}},
			wantRep: Report{Rows: 11, Jobs: 6, Joined: 3, Apart: 2, Left: map[string]int{"it has no GPU": 1, "it is a step of a job": 1}, FirstLeft: "line 2: it has no GPU"},
		},
		"Slurm's components with parts of GPUs": {
			o: Options{Format: "sacct", Shards: 4}, text: "JobID|Submit|ElapsedRaw|AllocTRES\n1+0|7|60|gres/gpu=1\n1+1|7|60|gres/shard=1\n2+0|7|60|gres/shard=1\n2+1|7|60|cpu=1\n3+0|7|60|gres/gpu=1048576\n3+1|7|60|gres/gpu=1\n",
			want:    []Job{{ID: "2+0", Submit: 7, Duration: 60, GPUs: 1, Share: 0.25}},
			wantRep: Report{Rows: 6, Jobs: 1, Broken: 2, First: "line 6: job 3 has 1048577 GPUs in all of its components: want 1 to 1048576", Left: map[string]int{"it is a component of a heterogeneous job with a part of a GPU beside other GPUs: a job has one, or whole GPUs": 2, "it has no GPU": 1}, FirstLeft: "line 2: it is a component of a heterogeneous job with a part of a GPU beside other GPUs: a job has one, or whole GPUs"},
		},
		"Slurm's older generic resources": {
			o: Options{Format: "sacct"}, text: "JobID|Submit|Elapsed|ReqGRES\n1|1970-01-01T00:00:07|01:00|gpu:8\n2|1970-01-01T00:00:07|01:00|gres:gpu:a100:4\n3|1970-01-01T00:00:07|01:00|gpu:v100:2(S:0-1)\n4|1970-01-01T00:00:07|01:00|gres:gpu:2(S:0),gres:tmpdisk:100\n",
			want: []Job{{ID: "1", Submit: 7, Duration: 60, GPUs: 8}, {ID: "2", Submit: 7, Duration: 60, GPUs: 4, GPUModels: "a100"}, {ID: "3", Submit: 7, Duration: 60, GPUs: 2, GPUModels: "v100"}, {ID: "4", Submit: 7, Duration: 60, GPUs: 2}}, wantRep: Report{Rows: 4, Jobs: 4},
		},
		"sacct as it prints by default": {o: Options{Format: "sacct"}, text: "JobID   Submit\n------- ------\n", wantErr: "columns JobID or JobIDRaw, Submit, ElapsedRaw or Elapsed, AllocTRES or ReqTRES or AllocGRES or ReqGRES are missing; there are, divided by '|': JobID   Submit"},
		"no run time of Slurm's":        {o: Options{Format: "sacct"}, text: "JobID|Submit|Start|End|ReqTRES\n1|7|8|9|gres/gpu=1\n", wantErr: "columns ElapsedRaw or Elapsed are missing"},
		"no column of another name":     {o: Options{Format: "sacct"}, text: "Job|Submit\n1|2\n", wantErr: "columns JobID or JobIDRaw, ElapsedRaw or Elapsed, AllocTRES or ReqTRES or AllocGRES or ReqGRES are missing"},
		"csv": {
			o: Options{Format: "csv"}, text: "\ufeffgpus,job,submit_s,duration_s,min_gpus,max_gpus,deadline_s,class,queue,model\n8,a,0,60,4,16,90,finetune,org/team,bert\n1,,1,2,,,,,,\n",
			want: []Job{{ID: "a", Duration: 60, GPUs: 8, Min: 4, Max: 16, Deadline: 90, Class: "finetune", Queue: "org/team", Model: "bert"}, {ID: "2", Submit: 1, Duration: 2, GPUs: 1}}, wantRep: Report{Rows: 2, Jobs: 2},
		},
		"broken rows are counted": {
			o: Options{Format: "csv"}, text: "job,submit_s,duration_s,gpus\na,x,0,1.5\nb,0,-1,1\nc,0,0,1\nd,0,1e30,1\ne,0,1,0\nf,0,NaN,1\ng,0,5,1\nh,0\n\"i,0,5,1\n",
			want: []Job{{ID: "g", Duration: 5, GPUs: 1}}, wantRep: Report{Rows: 9, Jobs: 1, Broken: 8, First: "line 2: submit_s \"x\": want a number\ngpus 1.5: want a whole number"},
		},
		"broken rows stop":         {o: Options{Format: "csv", Strict: true}, text: "job,submit_s,duration_s,gpus\na,0,5,1\nb,0,-1,1\n", wantErr: "line 3: duration_s -1 s: want 1e-06 to 1e+10"},
		"a class":                  {o: Options{Format: "csv", Strict: true}, text: "job,submit_s,duration_s,gpus,class\na,0,5,1,big\n", wantErr: "class \"big\": want one of"},
		"elastic bounds":           {o: Options{Format: "csv", Strict: true}, text: "job,submit_s,duration_s,gpus,min_gpus\na,0,5,1,2\n", wantErr: "min_gpus 2, max_gpus 1: want the 1 of gpus between them"},
		"parts of GPUs":            {o: Options{Format: "csv"}, text: "job,submit_s,duration_s,gpus,gpu_share,mig_profile\na,0,5,1,0.25,\nb,0,5,1,,1g.10gb\nc,0,5,1,1,\nd,0,5,2,0.5,\n", want: []Job{{ID: "a", Duration: 5, GPUs: 1, Share: 0.25}, {ID: "b", Duration: 5, GPUs: 1, Profile: "1g.10gb"}, {ID: "c", Duration: 5, GPUs: 1}}, wantRep: Report{Rows: 4, Jobs: 3, Broken: 1, First: "line 5: a part of a GPU (gpu_share, mig_profile) of 2 GPUs: want one of both, of 1 GPU, without min_gpus and max_gpus"}},
		"shorter than can be told": {o: Options{Format: "csv", Strict: true}, text: "job,submit_s,duration_s,gpus\na,0,1e-12,1\n", wantErr: "line 2: duration_s 1e-12 s: want 1e-06 to 1e+10"},
		"no share":                 {o: Options{Format: "csv", Strict: true}, text: "job,submit_s,duration_s,gpus,gpu_share,mig_profile\na,0,5,1,0,\n", wantErr: "line 2: gpu_share 0: want more than 0, at most 1"},
		"no profile":               {o: Options{Format: "csv", Strict: true}, text: "job,submit_s,duration_s,gpus,gpu_share,mig_profile\na,0,5,1,,half\n", wantErr: "line 2: mig_profile \"half\": want one such as 1g.10gb"},
		"too many columns":         {o: Options{Format: "csv"}, text: "job,submit_s,duration_s,gpus\na,0,5,1,9\nb,0,5,1,\n", want: []Job{{ID: "b", Duration: 5, GPUs: 1}}, wantRep: Report{Rows: 2, Jobs: 1, Broken: 1, First: "line 2: 5 columns: want the 4 of the header at most"}},
		"a column twice":           {o: Options{Format: "csv"}, text: "job,submit_s,duration_s,gpus,gpus\na,0,5,1,2\n", wantErr: "column gpus is there twice: want it once"},
		"no job":                   {o: Options{Format: "csv"}, text: "job,submit_s,duration_s,gpus\n", wantErr: "no job among them"},
		"all broken":               {o: Options{Format: "csv"}, text: "job,submit_s,duration_s,gpus\na,b,c,d\n", wantErr: "all of them broken or left out; line 2"},
		"an open quote":            {o: Options{Format: "csv"}, text: "job,submit_s,duration_s,gpus\na,0,5,1\n\"b,0,5,1\nc,0,5,1\n", want: []Job{{ID: "a", Duration: 5, GPUs: 1}, {ID: "c", Duration: 5, GPUs: 1}}, wantRep: Report{Rows: 3, Jobs: 2, Broken: 1, First: "line 3: column 1 begins with a quote (\") that is not closed on its line"}},
		"a quote over lines":       {o: Options{Format: "csv"}, text: "job,submit_s,duration_s,gpus\n\"a\nb\",0,5,1\nc,0,5,1\n", want: []Job{{ID: "c", Duration: 5, GPUs: 1}}, wantRep: Report{Rows: 3, Jobs: 1, Broken: 2, First: "line 2: column 1 begins with a quote (\") that is not closed on its line"}},
		"quotes":                   {o: Options{Format: "csv"}, text: "job,submit_s,duration_s,gpus,model\r\n\"a, \"\"b\"\"\",0,5,1,\"m\"\r\nc\"d,0,5,1,\"x\"y\"\r\n\r\ne,0,5,1", want: []Job{{ID: "a, \"b\"", Duration: 5, GPUs: 1, Model: "m"}, {ID: "c\"d", Duration: 5, GPUs: 1, Model: "x\"y"}, {ID: "e", Duration: 5, GPUs: 1}}, wantRep: Report{Rows: 3, Jobs: 3}},
		// What was asked for is a wish, and what was given is not.
		"the types that Slurm was asked for": {o: Options{Format: "sacct"}, text: "JobID|Submit|ElapsedRaw|AllocTRES|ReqTRES\n1|7|60|gres/gpu:a100=4,gres/gpu=4|gres/gpu=4\n2|7|60|gres/gpu:a100=4,gres/gpu=4|billing=4,gres/gpu=4,gres/gpu:a100=4\n3|7|60||gpu:v100:2\n4|7|60|gres/gpu=6|gres/gpu:a100=4,gres/gpu:h100=2\n5|7|60|gres/gpu:a100_3g.20gb=1|gres/gpu:a100_3g.20gb=1\n6+0|7|60|gres/gpu=1|gres/gpu:a100=1\n6+1|7|60|gres/gpu=1|gres/gpu:a100=1\n7+0|7|60|gres/gpu=1|gres/gpu:a100=1\n7+1|7|60|gres/gpu=1|gres/gpu:h100=1\n8|7|60|gres/gpu:a100=1|\n", want: []Job{{ID: "1", Submit: 7, Duration: 60, GPUs: 4}, {ID: "2", Submit: 7, Duration: 60, GPUs: 4, GPUModels: "a100"}, {ID: "3", Submit: 7, Duration: 60, GPUs: 2, GPUModels: "v100"}, {ID: "4", Submit: 7, Duration: 60, GPUs: 6, GPUModels: "a100|h100"}, {ID: "5", Submit: 7, Duration: 60, GPUs: 1, Profile: "3g.20gb"}, {ID: "6", Submit: 7, Duration: 60, GPUs: 2, GPUModels: "a100"}, {ID: "7", Submit: 7, Duration: 60, GPUs: 2}, {ID: "8", Submit: 7, Duration: 60, GPUs: 1}}, wantRep: Report{Rows: 10, Jobs: 8, Left: map[string]int{}, Joined: 2}},
		"a quote in a name of Slurm":         {o: Options{Format: "sacct"}, text: "JobID|JobName|State|Submit|End|Elapsed|AllocTRES|\n1|\"a|COMPLETED|1970-01-01T00:00:07|1970-01-01T00:01:07|00:01:00|gres/gpu=1|\n2|b|CANCELLED by 1000|1970-01-01T00:00:07|1970-01-01T00:01:07|00:01:00|gres/gpu=1|\n", want: []Job{{ID: "1", Submit: 7, Duration: 60, GPUs: 1, Model: "\"a"}, {ID: "2", Submit: 7, Duration: 60, GPUs: 1, Model: "b"}}, wantRep: Report{Rows: 2, Jobs: 2}},
		"Slurm's jobs that have not ended":   {o: Options{Format: "sacct"}, text: "JobID|State|Submit|End|ElapsedRaw|AllocTRES\n1|RUNNING|1970-01-01T00:00:07|Unknown|60|gres/gpu=1\n2|SUSPENDED|1970-01-01T00:00:07|Unknown|60|gres/gpu=1\n3_[1-9%2]|PENDING|1970-01-01T00:00:07|Unknown|0|gres/gpu=1\n3_0|COMPLETED|1970-01-01T00:00:07|1970-01-01T00:01:07|60|gres/gpu=1\n", want: []Job{{ID: "3_0", Submit: 7, Duration: 60, GPUs: 1}}, wantRep: Report{Rows: 4, Jobs: 1, Left: map[string]int{"it had not ended": 2, "it never ran": 1}, FirstLeft: "line 2: it had not ended"}},
		"a line that is too long":            {o: Options{Format: "csv"}, text: "job,submit_s,duration_s,gpus\n" + strings.Repeat("a", 1<<20) + ",0,5,1\nb,0,5,1\n" + strings.Repeat("c", 1<<17) + ",0,0,1\nd,0,5,1\n", want: []Job{{ID: "b", Duration: 5, GPUs: 1}, {ID: "d", Duration: 5, GPUs: 1}}, wantRep: Report{Rows: 4, Jobs: 2, Broken: 2, First: "line 2: the line is longer than 1048576 bytes"}},
		"UTF-16":                             {o: Options{Format: "csv"}, text: "\xff\xfej\x00o\x00b\x00", wantErr: "the text is UTF-16: want UTF-8"},
		"no text":                            {o: Options{Format: "csv"}, text: "a\x1b[31m,b\n1,2\n", wantErr: `divided by ',': a\x1b[31m, b`},
		"a long no header":                   {o: Options{Format: "csv"}, text: strings.Repeat("x", 1000) + "\n", wantErr: "xxx…"},
		"no columns":                         {o: Options{Format: "csv"}, text: "a,b\n1,2\n", wantErr: "columns job, submit_s, duration_s, gpus are missing; there are, divided by ',': a, b"},
		"nothing":                            {o: Options{Format: "csv"}, text: "", wantErr: "empty"},
		"no format":                          {o: Options{Format: "xml"}, text: "", wantErr: "format \"xml\": want one of"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			for _, zipped := range []bool{false, true} {
				data := []byte(test.text)
				if zipped && len(data) > 0 {
					data = zip(t, data)
				}
				got, rep, err := Read(bytes.NewReader(data), test.o)
				if (err != nil) != (test.wantErr != "") || err != nil && !strings.Contains(err.Error(), test.wantErr) {
					t.Fatalf("error %v: want %q", err, test.wantErr)
				}
				if err != nil {
					continue
				}
				if diff := cmp.Diff(test.want, got); diff != "" {
					t.Errorf("jobs (-want +got):\n%s", diff)
				}
				if diff := cmp.Diff(test.wantRep, rep, cmpopts.EquateEmpty()); diff != "" {
					t.Errorf("report (-want +got):\n%s", diff)
				}
			}
		})
	}
}

// What is compressed in another way is told, and not read as text.
func TestOtherCompression(t *testing.T) {
	for form, text := range map[string]string{"zip": "PK\x03\x04....", "zstd": "\x28\xb5\x2f\xfd....", "xz": "\xfd7zXZ....", "bzip2": "BZh9...."} {
		_, _, err := Read(strings.NewReader(text), Options{Format: FormatCSV})
		if want := "compressed as " + form + ": want plain text, or gzip"; err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: want %q", err, want)
		}
	}
}

func zip(t *testing.T, data []byte) []byte {
	t.Helper()
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	if _, err := w.Write(data); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// traces is where the published ones are.
const traces = "../../../../shared/traces"

// open opens one of them, or skips where they are not.
func open(t *testing.T, name string) *os.File {
	t.Helper()
	f, err := os.Open(filepath.Join(traces, name))
	if err != nil {
		t.Skipf("the published traces are not here: %v", err)
	}
	t.Cleanup(func() { _ = f.Close() })
	return f
}

// The published traces are read whole; what is left out of them is known.
func TestPublishedTraces(t *testing.T) {
	tests := []struct {
		file, format       string
		jobs, broken, left int
	}{
		{"itp-2021/cluster04.csv.gz", "itp", 15802, 0, 0},
		{"itp-2021/cluster10.csv.gz", "itp", 260, 0, 0},
		{"itp-2021/195job.csv", "itp", 195, 0, 0},
		{"gavel/msr-seed0.tsv.gz", "gavel", 15264 - 1548, 0, 1548},
		{"openb-2023/openb_pod_list_gpuspec33.csv.gz", "openb", 6203, 0, 1949},
	}
	for _, test := range tests {
		t.Run(test.file, func(t *testing.T) {
			o := Options{Format: test.format}
			if test.format == FormatGavel {
				rates, err := Throughputs(open(t, "gavel/simulation_throughputs.json.gz"), "v100")
				if err != nil {
					t.Fatal(err)
				}
				o.Throughputs = rates
			}
			jobs, rep, err := Read(open(t, test.file), o)
			if err != nil {
				t.Fatal(err)
			}
			left := 0
			for _, n := range rep.Left {
				left += n
			}
			if len(jobs) != test.jobs || rep.Broken != test.broken || left != test.left {
				t.Errorf("%d jobs, %d broken (%s), %d left out %v: want %d, %d, %d", len(jobs), rep.Broken, rep.First, left, rep.Left, test.jobs, test.broken, test.left)
			}
		})
	}
}

// anyJobs draws a trace.
func anyJobs(t *rapid.T) []Job {
	n := rapid.IntRange(2, 30).Draw(t, "jobs")
	jobs := make([]Job, n)
	for i := range jobs {
		jobs[i] = Job{ID: fmt.Sprint("j", i), Submit: float64(rapid.IntRange(0, 10*86400).Draw(t, "submit")), Duration: float64(rapid.IntRange(1, 1e6).Draw(t, "duration")), GPUs: rapid.IntRange(1, 64).Draw(t, "gpus")}
		if i < 2 {
			jobs[i].Submit = float64(i) * 86400
		}
		if rapid.Bool().Draw(t, "due") {
			jobs[i].Deadline = jobs[i].Submit + jobs[i].Duration
		}
	}
	Sort(jobs)
	return Shift(jobs)
}

// Scaling keeps durations, the order, and the time that deadlines leave, and the
// load becomes what was asked for.
func TestScaleTo(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		jobs, load := anyJobs(t), rapid.Float64Range(0.1, 3).Draw(t, "load")
		got, factor, err := ScaleTo(jobs, 64, load)
		if err != nil {
			t.Fatal(err)
		}
		if have := Load(got, 64); math.Abs(have-load) > 1e-9 {
			t.Errorf("load %g: want %g", have, load)
		}
		for i := range got {
			want := jobs[i]
			want.Submit *= factor
			if want.Deadline != 0 {
				want.Deadline += want.Submit - jobs[i].Submit
			}
			if diff := cmp.Diff(want, got[i], cmpopts.EquateApprox(1e-12, 1e-6)); diff != "" {
				t.Errorf("job %d (-want +got):\n%s", i, diff)
			}
		}
	})
	if _, _, err := ScaleTo([]Job{{Duration: 1, GPUs: 1}}, 8, 1); err == nil {
		t.Error("one job is scaled")
	}
}

// A draw has as many days, each of them one of the trace's, and another seed
// draws others.
func TestDraw(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		jobs, seed := anyJobs(t), rapid.Uint64().Draw(t, "seed")
		got := Draw(jobs, 0, seed)
		if diff := cmp.Diff(got, Draw(jobs, 0, seed)); diff != "" {
			t.Errorf("not the same again:\n%s", diff)
		}
		byID := map[string]Job{}
		for _, j := range jobs {
			byID[j.ID] = j
		}
		for _, j := range got {
			id, _, _ := strings.Cut(j.ID, ".")
			from := byID[id]
			if from.Duration != j.Duration || from.GPUs != j.GPUs || (from.Deadline != 0) != (j.Deadline != 0) || from.Deadline != 0 && math.Abs((from.Deadline-from.Submit)-(j.Deadline-j.Submit)) > 1e-6 {
				t.Errorf("%+v is none of the trace's: %+v", j, from)
			}
		}
		_, last := Span(jobs)
		if _, after := Span(got); after >= (math.Floor(last/day)+1)*day {
			t.Errorf("it is longer: %g s against %g s", after, last)
		}
	})
}

// What is written is read again.
func TestWrite(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		jobs := anyJobs(t)
		jobs[0].Min, jobs[0].Max, jobs[0].Class, jobs[0].Queue, jobs[0].Model = 1, 64, ClassSweep, "a,b", "\"x\""
		var b bytes.Buffer
		w, err := NewWriter(&b)
		for i := range jobs {
			if err == nil {
				err = w.Write(jobs[i])
			}
		}
		if err == nil {
			err = w.Flush()
		}
		if err != nil {
			t.Fatal(err)
		}
		got, _, err := Read(&b, Options{Format: FormatCSV, Strict: true})
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(jobs, got, cmpopts.EquateApprox(0, 1e-3)); diff != "" {
			t.Errorf("written and read (-want +got):\n%s", diff)
		}
	})
}

func FuzzRead(f *testing.F) {
	for _, format := range Formats() {
		f.Add(format, []byte("job,submit_s,duration_s,gpus\na,0,5,1\n"))
	}
	f.Add("sacct", []byte("JobID|Submit|Elapsed|AllocTRES\n7|2031-05-17T12:00:00|1-02:03:04|gres/gpu:a100_1g.5gb=1,gres/shard=-3\n"))
	f.Add("sacct", []byte("JobID|Submit|Elapsed|AllocTRES\n7|2031-05-17T12:00:00|1-02:03:04|gres/gpu=8\n"))
	f.Fuzz(func(t *testing.T, format string, data []byte) {
		jobs, rep, err := Read(bytes.NewReader(data), Options{Format: format, Throughputs: map[string]float64{"x": 1}})
		if err != nil {
			return
		}
		if len(jobs) != rep.Jobs {
			t.Errorf("%d jobs, %d reported", len(jobs), rep.Jobs)
		}
		for i := range jobs {
			if err := check(&jobs[i], named{}); err != nil {
				t.Errorf("%+v: %v", jobs[i], err)
			}
		}
	})
}
