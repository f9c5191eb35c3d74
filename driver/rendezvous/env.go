package rendezvous

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// Local is what only the member itself knows of its surroundings. Empty fields
// give no variable.
type Local struct {
	// Interface is the network interface that the members reach each other by.
	// NCCL finds one by itself, so it is named only where somebody knows better.
	Interface string
	// MembershipFile, HostFile and DeepSpeedHostFile are the paths of the files
	// with what JSON, HostFile and DeepSpeedHostFile return.
	MembershipFile    string
	HostFile          string
	DeepSpeedHostFile string
	// Socket is the path of the progress socket, HTTP the base URL of the
	// progress hook.
	Socket string
	HTTP   string
}

// Env returns the environment variables for the processes of one member. The
// error is an *Error for a membership that cannot be used, and ErrNotMember.
//
// Names are those that others have made customary: torch.distributed reads
// RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT; torchrun takes each of its
// options from PET_ and the option's name; GROUP_RANK is torchrun's name of the
// node's rank, NODE_RANK that of PyTorch Lightning and most launch scripts.
func Env(m Membership, alloc string, local Local) (map[string]string, error) {
	if err := Validate(m); err != nil {
		return nil, err
	}
	p, err := m.Find(alloc)
	if err != nil {
		return nil, err
	}
	env := map[string]string{
		"RANK":               strconv.Itoa(p.Rank),
		"LOCAL_RANKS":        sequence(0, p.Member.Processes),
		"WORLD_SIZE":         strconv.Itoa(m.World()),
		"LOCAL_WORLD_SIZE":   strconv.Itoa(p.Member.Processes),
		"NODE_RANK":          strconv.Itoa(p.NodeRank),
		"GROUP_RANK":         strconv.Itoa(p.NodeRank),
		"NNODES":             strconv.Itoa(len(m.Members)),
		"MASTER_ADDR":        m.MasterAddr,
		"MASTER_PORT":        strconv.Itoa(m.MasterPort),
		"CARAVAN_EPOCH":      m.Epoch,
		"CARAVAN_GENERATION": strconv.Itoa(m.Generation),
		"CARAVAN_RANKS":      sequence(p.Rank, p.Member.Processes),
	}
	if p.Member.Processes == 1 {
		// With more, each process has its own: their launcher sets it.
		env["LOCAL_RANK"] = "0"
	}
	torchrun(env, m, p)
	for key, value := range map[string]string{
		"CARAVAN_MEMBERSHIP":         local.MembershipFile,
		"CARAVAN_HOSTFILE":           local.HostFile,
		"CARAVAN_HOSTFILE_DEEPSPEED": local.DeepSpeedHostFile,
		"CARAVAN_SOCKET":             local.Socket,
		"CARAVAN_HTTP":               local.HTTP,
		"NCCL_SOCKET_IFNAME":         local.Interface,
		"GLOO_SOCKET_IFNAME":         local.Interface,
		// Open MPI's, and for version 5 its launcher PRRTE's, default host file and
		// interfaces: mpirun needs no options then.
		"OMPI_MCA_orte_default_hostfile": local.HostFile,
		"PRTE_MCA_prte_default_hostfile": local.HostFile,
		"OMPI_MCA_btl_tcp_if_include":    local.Interface,
		"OMPI_MCA_oob_tcp_if_include":    local.Interface,
	} {
		if value != "" {
			env[key] = value
		}
	}
	return env, nil
}

// torchrun adds what torchrun takes instead of options. A gang of fixed size
// uses its static rendezvous, where every node is told its rank. An elastic one
// uses c10d, which settles ranks anew when members come and go; who holds its
// store is told, because torchrun's own guess, by host names and addresses,
// fails behind address translation and with two members on one node.
func torchrun(env map[string]string, m Membership, p Place) {
	env["PET_NNODES"] = strconv.Itoa(len(m.Members))
	env["PET_NPROC_PER_NODE"] = strconv.Itoa(p.Member.Processes)
	env["PET_NODE_RANK"] = strconv.Itoa(p.NodeRank)
	env["PET_MASTER_ADDR"] = m.MasterAddr
	env["PET_MASTER_PORT"] = strconv.Itoa(m.MasterPort)
	env["PET_RDZV_ID"] = m.Epoch
	env["PET_LOCAL_ADDR"] = p.Member.Address
	if !m.Elastic() {
		return
	}
	env["PET_NNODES"] = fmt.Sprintf("%d:%d", m.Min, m.Max)
	env["PET_RDZV_BACKEND"] = "c10d"
	env["PET_RDZV_ENDPOINT"] = hostPort(m.MasterAddr, m.MasterPort)
	env["PET_RDZV_CONF"] = "is_host=" + strconv.FormatBool(p.NodeRank == 0)
}

// hostPort joins what Validate has let through, with brackets around an IPv6
// address.
func hostPort(addr string, port int) string {
	ip, err := netip.ParseAddr(addr)
	if err != nil {
		return addr + ":" + strconv.Itoa(port)
	}
	return netip.AddrPortFrom(ip, uint16(port)).String()
}

func sequence(from, n int) string {
	out := make([]string, n)
	for i := range out {
		out[i] = strconv.Itoa(from + i)
	}
	return strings.Join(out, ",")
}

// Pairs are the variables as KEY=VALUE, sorted.
func Pairs(env map[string]string) []string {
	out := make([]string, 0, len(env))
	for key, value := range env {
		out = append(out, key+"="+value)
	}
	slices.Sort(out)
	return out
}

// EnvFile is the variables as a file that a shell can source and that Docker,
// Podman and systemd read as an environment file. Only values that a shell
// would take apart are quoted, which the others do not all understand.
func EnvFile(env map[string]string) string {
	var b strings.Builder
	for _, pair := range Pairs(env) {
		key, value, _ := strings.Cut(pair, "=")
		b.WriteString(key + "=" + shellWord(value) + "\n")
	}
	return b.String()
}

func shellWord(s string) string {
	safe := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("_./:,=@%+-", r)
	}
	if s != "" && !strings.ContainsFunc(s, func(r rune) bool { return !safe(r) }) {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}
