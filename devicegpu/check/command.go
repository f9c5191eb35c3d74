package check

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/caravan-sched/caravan/devicegpu"
	"github.com/caravan-sched/caravan/devicegpu/nvml"
	"github.com/caravan-sched/caravan/devicegpu/topology"
)

// The exit codes of the command line.
const (
	exitFailed = 1
	exitUsage  = 2
)

// errUsage marks errors in how the command was called.
var errUsage = errors.New("usage")

// Main runs the command line and returns its exit code: 0, 1 for a source
// that cannot be read, 2 for a wrong call.
func Main(args []string, stdout, stderr io.Writer) int {
	root := command()
	root.SetArgs(args)
	root.SetOut(stdout)
	root.SetErr(stderr)
	err := root.Execute()
	if err == nil {
		return 0
	}
	fmt.Fprintf(stderr, "Error: %s\n", strings.TrimPrefix(err.Error(), errUsage.Error()+": "))
	if errors.Is(err, errUsage) {
		fmt.Fprintf(stderr, "Run '%s --help' for help.\n", devicegpu.Name)
		return exitUsage
	}
	return exitFailed
}

func command() *cobra.Command {
	root := &cobra.Command{
		Use:   devicegpu.Name,
		Short: "Nomad device plugin for GPUs and their topology",
		Long: `Nomad device plugin for GPUs and their topology.

Nomad starts this binary itself: put it into the agent's plugin_dir and
configure it with a block plugin "` + devicegpu.Name + `" { config { … } }.
Its commands are for people.`,
		Version:       devicegpu.Version,
		Args:          usageArgs(cobra.NoArgs),
		RunE:          func(c *cobra.Command, _ []string) error { return c.Help() },
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	root.CompletionOptions.DisableDefaultCmd = true
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return fmt.Errorf("%w: %w", errUsage, err) })
	root.AddCommand(checkCommand(), recordCommand(), decodeCommand())
	return root
}

func usageArgs(check cobra.PositionalArgs) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		if err := check(c, args); err != nil {
			return fmt.Errorf("%w: %w", errUsage, err)
		}
		return nil
	}
}

// sourceFlags adds the flags that say which source to look at.
func sourceFlags(c *cobra.Command, spec *nvml.Spec) {
	c.Flags().StringVar(&spec.Source, "source", nvml.SourceNVML, "where the GPUs come from: "+nvml.Sources())
	c.Flags().StringArrayVar(&spec.MIG, "mock-mig", nil, "divide a simulated GPU, \"0:3g.20gb,3g.20gb\"")
	c.Flags().StringVar(&spec.Faults, "mock-faults", "", "file with faults of simulated GPUs, lines such as \"3 xid 79\"")
	c.Flags().StringVar(&spec.Seed, "mock-seed", "", "seed of simulated GPUs' UUIDs (default: the host's name)")
}

func prepare(spec *nvml.Spec) error {
	if spec.Seed != "" {
		return nil
	}
	name, err := os.Hostname()
	if err != nil && spec.Source != nvml.SourceNVML {
		return fmt.Errorf("read the host's name, the default of --mock-seed: %w", err)
	}
	spec.Seed = name
	return nil
}

func checkCommand() *cobra.Command {
	var spec nvml.Spec
	var asJSON bool
	c := &cobra.Command{
		Use:   "check",
		Short: "Show what Nomad would be told about this machine's GPUs, and what is wrong",
		Args:  usageArgs(cobra.NoArgs),
		RunE: func(c *cobra.Command, _ []string) error {
			if err := prepare(&spec); err != nil {
				return err
			}
			report, err := Make(spec)
			if err != nil {
				return err
			}
			if asJSON {
				return writeJSON(c.OutOrStdout(), report)
			}
			return report.WriteText(c.OutOrStdout())
		},
	}
	sourceFlags(c, &spec)
	c.Flags().BoolVar(&asJSON, "json", false, "print one JSON object")
	return c
}

func recordCommand() *cobra.Command {
	var spec nvml.Spec
	c := &cobra.Command{
		Use:   "record",
		Short: "Print everything that a source tells, as a file for --source file:PATH",
		Args:  usageArgs(cobra.NoArgs),
		RunE: func(c *cobra.Command, _ []string) error {
			if err := prepare(&spec); err != nil {
				return err
			}
			source, err := nvml.Open(spec)
			if err != nil {
				return err
			}
			defer source.Close()
			inv, err := source.Inventory()
			if err != nil {
				return err
			}
			return writeJSON(c.OutOrStdout(), inv)
		},
	}
	sourceFlags(c, &spec)
	return c
}

func decodeCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "decode ATTRIBUTE",
		Short: "Print the matrix in a node's " + topology.AttrTopology + " attribute",
		Args:  usageArgs(cobra.ExactArgs(1)),
		RunE: func(c *cobra.Command, args []string) error {
			m, err := topology.Decode(strings.TrimSpace(args[0]))
			if err != nil {
				return err
			}
			return writeJSON(c.OutOrStdout(), m)
		},
	}
}

func writeJSON(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	enc.SetEscapeHTML(false)
	return enc.Encode(v)
}
