// Package cli holds the caravan command line: flags in, text or JSON out, and
// an exit code.
package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"time"

	"github.com/spf13/cobra"

	"github.com/caravan-sched/caravan/planner/cmd/caravan/internal/render"
)

// The exit codes. A job that is registered and waits is CodeQueued, as with
// `nomad job run`, whose 2 says that not everything was placed.
const (
	CodeOK      = 0
	CodeFailure = 1
	CodeUsage   = 2
	CodeQueued  = 2
)

// Env is what a command runs in.
type Env struct {
	Stdin          io.Reader
	Stdout, Stderr io.Writer
	// LookupEnv reads an environment variable; Environ lists all.
	LookupEnv func(string) (string, bool)
	Environ   func() []string
	// Terminal says that Stdout is one, so that colours may be used.
	Terminal bool
	Now      func() time.Time
	// Sleep waits between two looks at a job; it returns early with the
	// context's error.
	Sleep func(context.Context, time.Duration) error
	// Version is the program's.
	Version string
	// Agent runs a planner, Dev a development cluster with one.
	Agent Agent
	Dev   Dev
	// Doctor examines a cluster without a planner.
	Doctor Doctor
}

// app is one invocation.
type app struct {
	env       Env
	address   string
	namespace string
	token     string
	caCert    string
	json      bool
	noColor   bool
}

// exit is an error that carries an exit code. Its err may be nil: then
// everything was said already.
type exit struct {
	code int
	err  error
}

func (e *exit) Error() string {
	if e.err == nil {
		return fmt.Sprintf("exit code %d", e.code)
	}
	return e.err.Error()
}

func (e *exit) Unwrap() error { return e.err }

// usage is an error in how the command was called.
func usage(format string, args ...any) error {
	return &exit{code: CodeUsage, err: fmt.Errorf(format, args...)}
}

// Run executes a command line, without the program's name, and returns its
// exit code.
func Run(ctx context.Context, args []string, env Env) int {
	a := &app{env: env}
	out := &counter{w: env.Stdout}
	a.env.Stdout = out
	root := a.root()
	root.SetArgs(doubleDashes(args))
	root.SetIn(env.Stdin)
	root.SetOut(out)
	root.SetErr(env.Stderr)
	cmd, err := root.ExecuteContextC(ctx)
	if err == nil {
		return CodeOK
	}
	var e *exit
	if !errors.As(err, &e) {
		// What cobra itself refuses: unknown commands, wrong numbers of
		// arguments.
		e = &exit{code: CodeFailure, err: err}
		if cmd == root || errors.Is(err, errArgs) {
			e.code = CodeUsage
		}
	}
	if e.err != nil {
		a.fail(a.failureOf(e, cmd.CommandPath()), jsonAsked(args) && out.n == 0)
	}
	return e.code
}

var longFlag = regexp.MustCompile(`^-[a-z][a-z-]+(=.*)?$`)

// doubleDashes accepts long flags with one dash, as Nomad's commands have
// them. No short flag has more than one letter, so that nothing is ambiguous.
func doubleDashes(args []string) []string {
	out := make([]string, len(args))
	for i, arg := range args {
		if arg == "--" {
			copy(out[i:], args[i:])
			return out
		}
		if longFlag.MatchString(arg) {
			arg = "-" + arg
		}
		out[i] = arg
	}
	return out
}

const rootLong = `Caravan makes Nomad schedule GPU gangs: whole jobs on exactly the right GPUs,
all members at once or none.

Where it finds the planner:  --address, or CARAVAN_ADDR, or http://127.0.0.1:4656
Nomad's namespace and token: --namespace and --token, or NOMAD_NAMESPACE and NOMAD_TOKEN

Exit codes: 0 done; 1 failed, or invalid; 2 the command line is wrong, or, from
run and plan, the job waits in the queue. Flags may have one dash or two.`

func (a *app) root() *cobra.Command {
	root := &cobra.Command{
		Use:           "caravan",
		Short:         "GPU gangs on Nomad",
		Long:          rootLong,
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return cmd.Help()
		},
	}
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return usage("%w", err) })
	f := root.PersistentFlags()
	f.StringVar(&a.address, "address", "", "the planner's `URL`")
	f.StringVar(&a.namespace, "namespace", "", "Nomad `namespace` of the job")
	f.StringVar(&a.token, "token", "", "Nomad ACL `token`")
	f.StringVar(&a.caCert, "ca-cert", "", "`file` with the CA of the planner's certificate (CARAVAN_CACERT)")
	f.BoolVar(&a.json, "json", false, "print JSON")
	f.BoolVar(&a.noColor, "no-color", false, "print without colours (NO_COLOR)")
	root.AddGroup(
		&cobra.Group{ID: "jobs", Title: "Jobs:"},
		&cobra.Group{ID: "cluster", Title: "Cluster:"},
		&cobra.Group{ID: "operate", Title: "Operation:"},
	)
	add := func(group string, commands ...*cobra.Command) {
		for _, c := range commands {
			c.GroupID = group
			root.AddCommand(c)
		}
	}
	add("jobs", a.runCommand(), a.planCommand(), a.validateCommand(), a.explainCommand(), a.statusCommand(), a.queueCommand(), a.queuesCommand(), a.reservationsCommand(), a.poolsCommand(), a.releaseCommand(), a.joinCommand())
	add("jobs", a.suspendCommand(), a.resumeCommand(), a.requeueCommand())
	add("jobs", a.promoteCommand(), a.rollbackCommand())
	add("cluster", a.topologyCommand(), a.decideCommand(), a.snapshotCommand(), a.replayCommand(), a.defragCommand())
	add("cluster", a.simulateCommand(), a.traceCommand())
	add("operate", a.policyCommand(), a.agentCommand(), a.doctorCommand(), a.devCommand(), a.benchCommand())
	root.AddCommand(a.versionCommand(), a.devClientCommand())
	return root
}

var errArgs = errors.New("wrong number of arguments")

// args checks the number of arguments; what says what they are.
func args(least, most int, what string) cobra.PositionalArgs {
	return func(_ *cobra.Command, got []string) error {
		if len(got) < least || most >= 0 && len(got) > most {
			return usage("%w: it takes %s, not %d", errArgs, what, len(got))
		}
		return nil
	}
}

func (a *app) getenv(key string) string {
	v, _ := a.env.LookupEnv(key)
	return v
}

func (a *app) style() render.Style {
	return render.Style{Color: a.env.Terminal && !a.noColor && a.getenv("NO_COLOR") == "", Now: a.env.Now()}
}

// print writes an answer: as JSON if that was asked for, otherwise as text.
func (a *app) print(v any, text func(io.Writer, render.Style) error) error {
	if !a.json {
		return text(a.env.Stdout, a.style())
	}
	enc := json.NewEncoder(a.env.Stdout)
	enc.SetIndent("", "  ")
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return fmt.Errorf("write JSON: %w", err)
	}
	return nil
}
