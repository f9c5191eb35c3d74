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

// options reads what the variables are to be. It holds for every job file of
// a command.
func (f *jobFlags) options(env Env) (jobhcl.Options, error) {
	opts := jobhcl.Options{Vars: map[string]string{}, Env: env.Environ()}
	for _, v := range f.vars {
		key, value, ok := strings.Cut(v, "=")
		if !ok || key == "" {
			return opts, usage("--var %q: write it as NAME=VALUE", v)
		}
		opts.Vars[key] = value
	}
	for _, file := range f.varFiles {
		src, err := readFile(env, file)
		if err != nil {
			return opts, fmt.Errorf("read variables: %w", err)
		}
		opts.VarFiles = append(opts.VarFiles, jobhcl.VarFile{Name: file, Src: src})
	}
	return opts, nil
}

// read reads a job file with its variables. "-" is standard input.
func (f *jobFlags) read(env Env, name string) (*jobFile, error) {
	opts, err := f.options(env)
	if err != nil {
		return nil, err
	}
	return readJob(env, name, opts)
}

func readJob(env Env, name string, opts jobhcl.Options) (*jobFile, error) {
	src, err := readFile(env, name)
	if err != nil {
		return nil, fmt.Errorf("read job file: %w", err)
	}
	if name == "-" {
		name = "<stdin>"
	}
	return &jobFile{name: name, src: src, opts: opts}, nil
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

// submission is a job file as Nomad has parsed it.
type submission struct {
	job *api.Job
	// source is what Nomad keeps as the job's.
	source *api.JobSubmission
	// nomad is a client for the job's namespace.
	nomad *api.Client
}

// parse lets Nomad itself parse the job file, through the gateway.
func (a *app) parse(jf *jobFile) (*submission, error) {
	nomad, err := a.nomad()
	if err != nil {
		return nil, err
	}
	variables, err := jobhcl.VariableText(jf.src, jf.name, jf.opts)
	if err != nil {
		return nil, err
	}
	// Nomad wants the right to parse in the namespace that the request names.
	if own := namespaceIn(jf); own != "" {
		nomad.SetNamespace(own)
	}
	job, err := nomad.Jobs().ParseHCLOpts(&api.JobsParseRequest{JobHCL: string(jf.src), Variables: variables})
	if err != nil {
		return nil, fmt.Errorf("parse %s: %w", jf.name, err)
	}
	namespace, err := a.settle(jf.name, deref(job.Namespace))
	if err != nil {
		return nil, err
	}
	job.Namespace = &namespace
	nomad.SetNamespace(namespace)
	return &submission{job: job, nomad: nomad, source: &api.JobSubmission{Source: string(jf.src), Format: "hcl2", Variables: variables}}, nil
}

// namespaceIn is the namespace that a job file names. A file that cannot be
// read here names none: Nomad says what is wrong with it.
func namespaceIn(jf *jobFile) string {
	job, err := jobhcl.ParseWith(jf.src, jf.name, jf.opts)
	if err != nil {
		return ""
	}
	return deref(job.Namespace)
}

// settle says in which namespace a job goes: the file's, as with Nomad's own
// commands; the flag's or the environment's where it names none. A flag that
// says something else than the file is a mistake in one of them.
func (a *app) settle(file, own string) (string, error) {
	switch {
	case own == "":
		return a.jobNamespace(), nil
	case a.namespace != "" && a.namespace != own:
		return "", usage("--namespace %q contradicts %s, whose job is for namespace %q; leave one of them out", a.namespace, file, own)
	}
	return own, nil
}

func deref[T any](p *T) T {
	if p == nil {
		var zero T
		return zero
	}
	return *p
}
