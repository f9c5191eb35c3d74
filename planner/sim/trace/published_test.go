package trace

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestPublished(t *testing.T) {
	tests := map[string]struct {
		format, text string
		want         []Job
		broken, left int
	}{
		"tiresias": {
			format: FormatTiresias, text: "job_id,num_gpu,submit_time,iterations,model_name,duration,interval\n0,1,0,606,vgg19,164,30\n1,8,30,133,vgg11,147,23\n2,x,30,133,vgg11,147,23\n",
			want: []Job{{ID: "0", Duration: 164, GPUs: 1, Model: "vgg19"}, {ID: "1", Submit: 30, Duration: 147, GPUs: 8, Model: "vgg11"}}, broken: 1,
		},
		"helios": {
			format: FormatHelios, text: "job_id,user,vc,gpu_num,cpu_num,node_num,state,submit_time,start_time,end_time,duration,queue\n" +
				"5,u1,vcA,8,32,1,COMPLETED,2020-04-01 00:00:10,2020-04-01 00:00:20,2020-04-01 00:01:20,60,10\n6,u1,vcA,0,1,1,COMPLETED,2020-04-01 00:00:11,,,5,0\n" +
				"7,u2,vcB,1,1,1,CANCELLED,2020-04-01 00:00:12,,,0,3\n8,u2,vcB,1,1,1,RUNNING,2020-04-01 00:00:12,,,,3\n9,u2,vcB,1,1,1,COMPLETED,yesterday,,,9,3\n",
			want: []Job{{ID: "5", Submit: 1585699210, Duration: 60, GPUs: 8, Queue: "vcA"}}, broken: 1, left: 3,
		},
		"acme": {
			format: FormatHelios, text: "job_id,user,node_num,gpu_num,cpu_num,type,submit_time,start_time,end_time,duration\ndlc1,u,1,16,8,Pretrain,2023-03-01 08:00:00+08:00,x,y,100\n",
			want: []Job{{ID: "dlc1", Submit: 1677628800, Duration: 100, GPUs: 16, Queue: "Pretrain"}},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got, rep, err := Read(strings.NewReader(test.text), Options{Format: test.format})
			if err != nil {
				t.Fatal(err)
			}
			left := 0
			for _, n := range rep.Left {
				left += n
			}
			if diff := cmp.Diff(test.want, got); diff != "" || rep.Broken != test.broken || left != test.left {
				t.Errorf("%+v (-want +got):\n%s", rep, diff)
			}
		})
	}
}
