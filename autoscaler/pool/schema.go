package pool

// The structs below are the file's form. Pointers tell a key that is absent from
// one that is empty. The doc of each key is in docs/burst.md.

type file struct {
	Currency *string       `hcl:"currency,optional"`
	DataSet  []fileDataSet `hcl:"data_set,block"`
	Pool     []filePool    `hcl:"pool,block"`
}

type fileDataSet struct {
	Name        string   `hcl:"name,label"`
	GB          *float64 `hcl:"gb,optional"`
	EgressPrice *float64 `hcl:"egress_price,optional"`
}

type filePool struct {
	Name         string  `hcl:"name,label"`
	Provider     *string `hcl:"provider,optional"`
	Region       *string `hcl:"region,optional"`
	InstanceType *string `hcl:"instance_type,optional"`

	Node      *fileNode      `hcl:"node,block"`
	Price     *filePrice     `hcl:"price,block"`
	Terraform *fileTerraform `hcl:"terraform,block"`

	Levels       *map[string]string `hcl:"levels,optional"`
	Near         *string            `hcl:"near,optional"`
	BootTime     *string            `hcl:"boot_time,optional"`
	JoinTimeout  *string            `hcl:"join_timeout,optional"`
	SpotLifetime *string            `hcl:"spot_lifetime,optional"`
	TransferGbps *float64           `hcl:"transfer_gbps,optional"`
	Quota        *int               `hcl:"quota,optional"`
	Carbon       *float64           `hcl:"carbon,optional"`
	PowerKW      *float64           `hcl:"power_kw,optional"`
	Data         *[]string          `hcl:"data,optional"`
}

type fileNode struct {
	GPUs          *int               `hcl:"gpus,optional"`
	Vendor        *string            `hcl:"vendor,optional"`
	Type          *string            `hcl:"type,optional"`
	Model         *string            `hcl:"model,optional"`
	GPUAttributes *map[string]string `hcl:"gpu_attributes,optional"`
	IslandSize    *int               `hcl:"island_size,optional"`
	NUMANodes     *int               `hcl:"numa_nodes,optional"`
	CPUMHz        *int               `hcl:"cpu_mhz,optional"`
	Cores         *int               `hcl:"cores,optional"`
	MemoryMiB     *int               `hcl:"memory_mib,optional"`
	DiskMiB       *int               `hcl:"disk_mib,optional"`
	Datacenter    *string            `hcl:"datacenter,optional"`
	NodePool      *string            `hcl:"node_pool,optional"`
	Class         *string            `hcl:"class,optional"`
	Meta          *map[string]string `hcl:"meta,optional"`
	Attributes    *map[string]string `hcl:"attributes,optional"`
}

type filePrice struct {
	OnDemand      *float64 `hcl:"on_demand,optional"`
	Spot          *float64 `hcl:"spot,optional"`
	Egress        *float64 `hcl:"egress,optional"`
	MinBilling    *string  `hcl:"min_billing,optional"`
	BillingPeriod *string  `hcl:"billing_period,optional"`
}

type fileTerraform struct {
	WorkingDirectory *string   `hcl:"working_directory,optional"`
	Workspace        *string   `hcl:"workspace,optional"`
	Variable         *string   `hcl:"variable,optional"`
	VarFiles         *[]string `hcl:"var_files,optional"`
}
