package cli

import (
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/hashicorp/nomad/api"
	"github.com/spf13/cobra"

	"github.com/caravan-sched/caravan/internal/jobhcl"
)

// What is read at most, in bytes. A snapshot of 16,384 nodes with their link
// matrices is far below.
const (
	maxJobFile  = 16 << 20
	maxSnapshot = 1 << 30
)

// jobFlags are the flags of commands that read a job file.
type jobFlags struct {
	vars     []string
	varFiles []string
}

func (f *jobFlags) add(cmd *cobra.Command) {
	cmd.Flags().StringArrayVar(&f.vars, "var", nil, "a variable's value, as `NAME=VALUE`; may be repeated")
	cmd.Flags().StringArrayVar(&f.varFiles, "var-file", nil, "a `file` of NAME = VALUE lines; may be repeated")
}

// jobFile is a job file as it was read.
type jobFile struct {
	name string
	src  []byte
	opts jobhcl.Options
}

// read reads the job file and what its variables are to be. "-" is standard
// input.
func (f *jobFlags) read(env Env, name string) (*jobFile, error) {
	jf := &jobFile{name: name, opts: jobhcl.Options{Vars: map[string]string{}, Env: env.Environ()}}
	for _, v := range f.vars {
		key, value, ok := strings.Cut(v, "=")
		if !ok || key == "" {
			return nil, usage("--var %q: write it as NAME=VALUE", v)
		}
		jf.opts.Vars[key] = value
	}
	for _, file := range f.varFiles {
		src, err := readFile(env, file)
		if err != nil {
			return nil, fmt.Errorf("read variables: %w", err)
		}
		jf.opts.VarFiles = append(jf.opts.VarFiles, jobhcl.VarFile{Name: file, Src: src})
	}
	var err error
	if jf.src, err = readFile(env, name); err != nil {
		return nil, fmt.Errorf("read job file: %w", err)
	}
	if name == "-" {
		jf.name = "<stdin>"
	}
	return jf, nil
}

func readFile(env Env, name string) ([]byte, error) { return readAtMost(env, name, maxJobFile) }

// readAtMost reads a file, or standard input for "-".
func readAtMost(env Env, name string, most int64) ([]byte, error) {
	in := env.Stdin
	if name != "-" {
		file, err := os.Open(name)
		if err != nil {
			return nil, err
		}
		defer file.Close()
		in = file
	}
	src, err := io.ReadAll(io.LimitReader(in, most+1))
	if err != nil {
		return nil, err
	}
	if int64(len(src)) > most {
		return nil, fmt.Errorf("%s has more than %d bytes", name, most)
	}
	return src, nil
}

// parse lets Nomad itself parse the job file, through the gateway. The
// submission is what Nomad keeps as the job's source.
func (a *app) parse(nomad *api.Client, jf *jobFile) (*api.Job, *api.JobSubmission, error) {
	variables, err := jobhcl.VariableText(jf.src, jf.name, jf.opts)
	if err != nil {
		return nil, nil, err
	}
	job, err := nomad.Jobs().ParseHCLOpts(&api.JobsParseRequest{JobHCL: string(jf.src), Variables: variables})
	if err != nil {
		return nil, nil, fmt.Errorf("parse %s: %w", jf.name, err)
	}
	if job.Namespace == nil || *job.Namespace == "" || a.namespace != "" {
		namespace := a.jobNamespace()
		job.Namespace = &namespace
	}
	return job, &api.JobSubmission{Source: string(jf.src), Format: "hcl2", Variables: variables}, nil
}

func deref[T any](p *T) T {
	if p == nil {
		var zero T
		return zero
	}
	return *p
}
