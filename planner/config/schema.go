package config

// The structs below are the file's form. Pointers tell a key that is absent
// from one that is empty. The doc of each key is in docs/operators.md.

type fileConfig struct {
	Nomad        *fileNomad        `hcl:"nomad,block"`
	Listen       *fileListen       `hcl:"listen,block"`
	Managed      *fileManaged      `hcl:"managed,block"`
	Policy       *filePolicy       `hcl:"policy,block"`
	Admission    *fileAdmission    `hcl:"admission,block"`
	Trouble      *fileTrouble      `hcl:"trouble,block"`
	Levels       *[]string         `hcl:"levels,optional"`
	Level        []fileLevel       `hcl:"level,block"`
	TopologyFile *string           `hcl:"topology_file,optional"`
	Queue        []fileQueue       `hcl:"queue,block"`
	Reservation  []fileReservation `hcl:"reservation,block"`
	QueuesFile   *string           `hcl:"queues_file,optional"`
	Region       []fileRegion      `hcl:"region,block"`
	Federation   *fileFederation   `hcl:"federation,block"`
	Burst        *fileBurst        `hcl:"burst,block"`
	State        *fileState        `hcl:"state,block"`
	Gateway      *fileGateway      `hcl:"gateway,block"`
	Barrier      *fileBarrier      `hcl:"barrier,block"`
	ObserveOnly  *bool             `hcl:"observe_only,optional"`
	LogLevel     *string           `hcl:"log_level,optional"`
}

type fileNomad struct {
	Address       *string `hcl:"address,optional"`
	Region        *string `hcl:"region,optional"`
	Token         *string `hcl:"token,optional"`
	TokenFile     *string `hcl:"token_file,optional"`
	CAFile        *string `hcl:"ca_file,optional"`
	CAPath        *string `hcl:"ca_path,optional"`
	CertFile      *string `hcl:"cert_file,optional"`
	KeyFile       *string `hcl:"key_file,optional"`
	TLSServerName *string `hcl:"tls_server_name,optional"`
	TLSSkipVerify *bool   `hcl:"tls_skip_verify,optional"`
}

type fileListen struct {
	Address   *string  `hcl:"address,optional"`
	Advertise *string  `hcl:"advertise,optional"`
	TLS       *fileTLS `hcl:"tls,block"`
}

type fileTLS struct {
	CertFile     *string `hcl:"cert_file,optional"`
	KeyFile      *string `hcl:"key_file,optional"`
	ClientCAFile *string `hcl:"client_ca_file,optional"`
}

type fileManaged struct {
	Devices          *[]string `hcl:"devices,optional"`
	Namespaces       *[]string `hcl:"namespaces,optional"`
	ExemptNamespaces *[]string `hcl:"exempt_namespaces,optional"`
	ExemptNodePools  *[]string `hcl:"exempt_node_pools,optional"`
}

type filePolicy struct {
	Order    *string `hcl:"order,optional"`
	Strict   *bool   `hcl:"strict,optional"`
	MaxHolds *int    `hcl:"max_holds,optional"`
	HalfLife *string `hcl:"half_life,optional"`
	// Forecasts is for how many waiting gangs a start is estimated.
	Forecasts *int `hcl:"forecasts,optional"`

	Backfill    *fileBackfill    `hcl:"backfill,block"`
	Preempt     *filePreempt     `hcl:"preempt,block"`
	Elastic     *fileElastic     `hcl:"elastic,block"`
	LAS         *fileLAS         `hcl:"las,block"`
	Caravan     *fileCaravan     `hcl:"caravan,block"`
	Interactive *fileInteractive `hcl:"interactive,block"`
	Timeslice   *fileTimeslice   `hcl:"timeslice,block"`

	Deadline *fileDeadline `hcl:"deadline,block"`
	Defrag   *fileDefrag   `hcl:"defrag,block"`
	Replace  *fileReplace  `hcl:"replace,block"`
	Spares   *fileSpares   `hcl:"spares,block"`
	FTF      *fileFTF      `hcl:"ftf,block"`
	MaxMin   *fileMaxMin   `hcl:"maxmin,block"`
}

type fileReplace struct {
	KeepFor *string `hcl:"keep_for,optional"`
}

type fileSpares struct {
	Per   *string `hcl:"per,optional"`
	Nodes *int    `hcl:"nodes,optional"`
}

type fileElastic struct {
	Enabled     *bool    `hcl:"enabled,optional"`
	MinInterval *string  `hcl:"min_interval,optional"`
	MaxPerHour  *int     `hcl:"max_per_hour,optional"`
	MinGain     *float64 `hcl:"min_gain,optional"`
}

type fileDefrag struct {
	Enabled         *bool    `hcl:"enabled,optional"`
	MinBenefitRatio *float64 `hcl:"min_benefit_ratio,optional"`
	MaxPerHour      *int     `hcl:"max_per_hour,optional"`
	MaxPerGang      *int     `hcl:"max_per_gang,optional"`
	MaxPerJob       *int     `hcl:"max_per_job,optional"`
	MinRunTime      *string  `hcl:"min_run_time,optional"`
	Again           *string  `hcl:"again,optional"`
}

type filePreempt struct {
	Enabled        *bool   `hcl:"enabled,optional"`
	Unsaved        *bool   `hcl:"unsaved,optional"`
	MinPriorityGap *int    `hcl:"min_priority_gap,optional"`
	MinRunTime     *string `hcl:"min_run_time,optional"`
	MaxAtOnce      *int    `hcl:"max_at_once,optional"`
	MaxGPUsAtOnce  *int    `hcl:"max_gpus_at_once,optional"`
	MaxGiBAtOnce   *int    `hcl:"max_gib_at_once,optional"`
	MaxPerHour     *int    `hcl:"max_per_hour,optional"`
	MaxPerJob      *int    `hcl:"max_per_job,optional"`
	RestartTime    *string `hcl:"restart_time,optional"`

	Storages []*fileStorage `hcl:"storage,block"`
}

// fileStorage is a storage that gangs save their checkpoints to.
type fileStorage struct {
	Name          string `hcl:"name,label"`
	MaxAtOnce     *int   `hcl:"max_at_once,optional"`
	MaxGPUsAtOnce *int   `hcl:"max_gpus_at_once,optional"`
	MaxGiBAtOnce  *int   `hcl:"max_gib_at_once,optional"`
}

type fileAdmission struct {
	Deadline *string    `hcl:"deadline,optional"`
	Retry    *fileRetry `hcl:"retry,block"`
}

type fileRetry struct {
	Initial *string `hcl:"initial,optional"`
	Max     *string `hcl:"max,optional"`
}

type fileTrouble struct {
	SickGPU    *string `hcl:"sick_gpu,optional"`
	MissingGPU *string `hcl:"missing_gpu,optional"`
}

type fileLevel struct {
	Name string  `hcl:"name,label"`
	Meta *string `hcl:"meta,optional"`
}

type fileState struct {
	Namespace *string `hcl:"namespace,optional"`
}

type fileBarrier struct {
	MaxWaiting *int    `hcl:"max_waiting,optional"`
	AvoidFor   *string `hcl:"avoid_for,optional"`
}

type fileGateway struct {
	Wait *string `hcl:"wait,optional"`
}
