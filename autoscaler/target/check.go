package target

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/hashicorp/go-hclog"

	"github.com/caravan-sched/caravan/autoscaler/pool"
	"github.com/caravan-sched/caravan/autoscaler/terraform"
	"github.com/caravan-sched/caravan/planner/burstapi"
)

// Checked is what was found out of a pool before anything is bought there.
type Checked struct {
	Pool      string   `json:"pool"`
	Directory string   `json:"directory"`
	Workspace string   `json:"workspace"`
	Binary    string   `json:"binary"`
	Version   string   `json:"version"`
	Nodes     []string `json:"nodes"`
	// Credentials are where some may be, by names of variables and files.
	Credentials []string `json:"credentials"`
	Faults      []string `json:"faults"`
	Warnings    []string `json:"warnings"`
}

// errChecked says that a check has found faults, which have been told.
var errChecked = errors.New("there are faults")

// credentials are where a provider finds some: variables of the environment, and files
// in the home directory.
var credentials = map[string]struct{ variables, files []string }{
	"aws":   {[]string{"AWS_ACCESS_KEY_ID", "AWS_PROFILE", "AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "AWS_CONTAINER_CREDENTIALS_FULL_URI"}, []string{".aws/credentials", ".aws/config"}},
	"gcp":   {[]string{"GOOGLE_CREDENTIALS", "GOOGLE_APPLICATION_CREDENTIALS", "GOOGLE_OAUTH_ACCESS_TOKEN"}, []string{".config/gcloud/application_default_credentials.json"}},
	"azure": {[]string{"ARM_CLIENT_ID", "ARM_USE_MSI", "ARM_USE_OIDC", "ARM_CLIENT_CERTIFICATE_PATH"}, []string{".azure/azureProfile.json"}},
	"oci":   {[]string{"TF_VAR_private_key_path", "TF_VAR_private_key", "OCI_CLI_CONFIG_FILE"}, []string{".oci/config"}},
}

// RunCheck carries out `caravan-terraform check`: it says everything that is wrong with
// the pools' working directories, and changes nothing. It returns the exit status.
func RunCheck(ctx context.Context, args []string, out, errOut io.Writer) int {
	err := runCheck(ctx, args, out, errOut)
	switch {
	case err == nil, errors.Is(err, flag.ErrHelp):
		return 0
	case !errors.Is(err, errChecked):
		fmt.Fprintln(errOut, "check:", err)
	}
	return 1
}

func runCheck(ctx context.Context, args []string, out, errOut io.Writer) error {
	flags := flag.NewFlagSet("caravan-terraform check", flag.ContinueOnError)
	flags.SetOutput(errOut)
	file := flags.String("pools", "", "the pools `file`")
	only := flags.String("pool", "", "the `name` of one pool; all, unless set")
	binary := flags.String("binary", "", "terraform or tofu, by name or path; the first on the PATH, unless set")
	resources := flags.String("resources", "", "terraform_resources, as in the policy")
	limit := flags.Duration("timeout", terraform.DefaultPlanLimit, "how long a plan may take")
	asJSON := flags.Bool("json", false, "write JSON")
	if err := flags.Parse(args); err != nil {
		return err
	}
	switch {
	case *file == "":
		return errors.New("want -pools FILE, the pools file")
	case flags.NArg() > 0:
		return fmt.Errorf("want no argument, and there is %q: the pools file is told by -pools, one of its pools by -pool", flags.Args())
	case *limit <= 0:
		return fmt.Errorf("-timeout is %s: want a duration above 0, such as 5m", *limit)
	}
	pools, err := pool.Load(*file)
	if err != nil {
		return err
	}
	if len(pools.Pools) == 0 {
		return fmt.Errorf("%s has no pool: want a block pool \"NAME\" { … } for each, as docs/burst.md has it", *file)
	}
	if *only != "" && pools.Find(*only) == nil {
		return fmt.Errorf("%s has no pool %q, only %s", *file, *only, strings.Join(poolNames(pools), ", "))
	}
	s := settings{pools: pools, binary: *binary, plan: *limit}
	all, bad := []Checked{}, false
	for i := range pools.Pools {
		p := &pools.Pools[i]
		if *only != "" && p.Name != *only {
			continue
		}
		c := s.check(ctx, request{pool: p, resources: *resources})
		all, bad = append(all, c), bad || len(c.Faults) > 0
	}
	if err := writeChecked(out, all, *asJSON); err != nil {
		return err
	}
	if bad {
		return errChecked
	}
	return nil
}

func poolNames(f *pool.File) []string {
	out := make([]string, 0, len(f.Pools))
	for i := range f.Pools {
		out = append(out, f.Pools[i].Name)
	}
	return out
}

// check looks at one pool.
func (s settings) check(ctx context.Context, r request) Checked {
	c := Checked{Pool: r.pool.Name, Nodes: []string{}, Faults: []string{}, Warnings: []string{}}
	var needed bool
	c.Credentials, needed = findCredentials(r.pool.Provider)
	cfg, err := s.directory(r)
	if err != nil {
		c.Faults = append(c.Faults, err.Error())
		return c
	}
	market := string(burstapi.OnDemand)
	if r.pool.OnDemand == 0 {
		market = string(burstapi.Spot)
	}
	p := terraform.Examine(ctx, cfg, market, hclog.NewNullLogger())
	c.Directory, c.Workspace, c.Binary, c.Version = p.Dir, p.Workspace, p.Binary, p.Version
	c.Nodes, c.Warnings = append(c.Nodes, p.Nodes...), append(c.Warnings, p.Warnings...)
	for _, err := range p.Faults {
		c.Faults = append(c.Faults, strings.Split(strings.TrimSpace(err.Error()), "\n")...)
	}
	if needed && len(c.Credentials) == 0 {
		c.Warnings = append(c.Warnings, fmt.Sprintf("no credentials for provider %q are in the environment or the home directory: the machine has to have a role of its own", r.pool.Provider))
	}
	return c
}

// findCredentials says where a provider may find credentials, and whether it needs some
// as far as is known. Their values are nobody's business.
func findCredentials(provider string) (found []string, needed bool) {
	found = []string{}
	where, needed := credentials[provider]
	for _, name := range where.variables {
		if os.Getenv(name) != "" {
			found = append(found, name)
		}
	}
	home, err := os.UserHomeDir()
	for _, name := range where.files {
		if err != nil {
			break
		}
		if f, err := os.Open(filepath.Join(home, name)); err == nil {
			f.Close()
			found = append(found, "~/"+name)
		}
	}
	return found, needed
}

func writeChecked(w io.Writer, all []Checked, asJSON bool) error {
	if asJSON {
		enc := json.NewEncoder(w)
		enc.SetIndent("", "  ")
		return enc.Encode(all)
	}
	var b strings.Builder
	for _, c := range all {
		verdict := "nodes can be made"
		if len(c.Faults) > 0 {
			verdict = fmt.Sprintf("faults: %d", len(c.Faults))
		}
		fmt.Fprintf(&b, "pool %s: %s\n", c.Pool, verdict)
		fmt.Fprintf(&b, "  directory   %s, workspace %s\n", c.Directory, c.Workspace)
		if c.Version != "" {
			fmt.Fprintf(&b, "  binary      %s, version %s\n", c.Binary, c.Version)
		}
		if len(c.Credentials) > 0 {
			fmt.Fprintf(&b, "  credentials %s\n", strings.Join(c.Credentials, ", "))
		}
		if len(c.Nodes) > 0 {
			fmt.Fprintf(&b, "  nodes       %s\n", strings.Join(c.Nodes, ", "))
		}
		for _, f := range c.Faults {
			fmt.Fprintf(&b, "  fault: %s\n", f)
		}
		for _, t := range c.Warnings {
			fmt.Fprintf(&b, "  warning: %s\n", t)
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}
