package cli

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net/http"
	"os"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/caravan-sched/caravan/planner/httpapi"
)

// answerTimeout is above what the gateway waits for a first decision.
const answerTimeout = 2 * time.Minute

func firstOf(values ...string) string {
	for _, v := range values {
		if v != "" {
			return v
		}
	}
	return ""
}

func (a *app) plannerAddress() string {
	return firstOf(a.address, a.getenv(httpapi.AddressEnv), httpapi.DefaultAddress)
}

// jobNamespace is the namespace that commands which name a job look in.
func (a *app) jobNamespace() string {
	return firstOf(a.namespace, a.getenv("NOMAD_NAMESPACE"), api.DefaultNamespace)
}

func (a *app) nomadToken() string { return firstOf(a.token, a.getenv("NOMAD_TOKEN")) }

func (a *app) httpClient() (*http.Client, error) {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	if file := firstOf(a.caCert, a.getenv("CARAVAN_CACERT")); file != "" {
		pem, err := os.ReadFile(file)
		if err != nil {
			return nil, fmt.Errorf("read CA certificate: %w", err)
		}
		pool := x509.NewCertPool()
		if !pool.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("read CA certificate: %s holds no PEM certificate", file)
		}
		transport.TLSClientConfig = &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}
	}
	return &http.Client{Transport: transport, Timeout: answerTimeout}, nil
}

// planner is the client of Caravan's own API.
func (a *app) planner() (*httpapi.Client, error) {
	hc, err := a.httpClient()
	if err != nil {
		return nil, err
	}
	c, err := httpapi.NewClient(a.plannerAddress(), a.nomadToken(), hc)
	if err != nil {
		return nil, usage("%w", err)
	}
	return c, nil
}

// nomad is the client of Nomad's API behind the planner's gateway.
func (a *app) nomad() (*api.Client, error) {
	hc, err := a.httpClient()
	if err != nil {
		return nil, err
	}
	// Nomad checks the right to parse in a namespace too, before it knows the
	// job's.
	c, err := api.NewClient(&api.Config{Address: a.plannerAddress(), SecretID: a.nomadToken(), Namespace: a.jobNamespace(), HttpClient: hc})
	if err != nil {
		return nil, fmt.Errorf("make Nomad client: %w", err)
	}
	return c, nil
}
