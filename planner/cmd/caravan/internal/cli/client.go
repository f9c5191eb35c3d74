package cli

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
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

// explained adds to an error what can be done about it.
func (a *app) explained(err error) error {
	var dial *net.OpError
	if errors.As(err, &dial) && dial.Op == "dial" {
		return fmt.Errorf("cannot reach the planner at %s: %w\n"+
			"Start it with `caravan agent -config FILE` (`caravan dev` starts a whole cluster to try), or say with --address or CARAVAN_ADDR where it runs.",
			a.plannerAddress(), dial.Err)
	}
	status := 0
	var own *httpapi.Error
	var nomad api.UnexpectedResponseError
	switch {
	case errors.As(err, &own):
		status = own.Status
	case errors.As(err, &nomad):
		status = nomad.StatusCode()
		err = nomadWords(err, nomad)
	}
	if status == http.StatusForbidden || status == http.StatusUnauthorized {
		return fmt.Errorf("%w\nGive a Nomad ACL token that may do this, with --token or NOMAD_TOKEN, and the namespace in which it may, with --namespace or NOMAD_NAMESPACE.", err)
	}
	return err
}

// nomadWords leaves out of an error what only repeats the status code.
func nomadWords(err error, answer api.UnexpectedResponseError) error {
	if body := answer.Body(); body != "" {
		return fmt.Errorf("answer %d: %s", answer.StatusCode(), body)
	}
	return err
}
