package config

import (
	"fmt"
	"os"
	"strings"

	"github.com/hashicorp/nomad/api"
)

// ClientConfig makes the configuration of Nomad's API client. It reads the
// token file anew at every call.
func (n Nomad) ClientConfig() (*api.Config, error) {
	token := n.Token
	if n.TokenFile != "" {
		b, err := os.ReadFile(n.TokenFile)
		if err != nil {
			return nil, fmt.Errorf("read nomad.token_file: %w", err)
		}
		token = strings.TrimSpace(string(b))
		if token == "" {
			return nil, fmt.Errorf("read nomad.token_file: %s is empty", n.TokenFile)
		}
	}
	return &api.Config{
		Address:  n.Address,
		Region:   n.Region,
		SecretID: token,
		TLSConfig: &api.TLSConfig{
			CACert:        n.CAFile,
			CAPath:        n.CAPath,
			ClientCert:    n.CertFile,
			ClientKey:     n.KeyFile,
			TLSServerName: n.TLSServerName,
			Insecure:      n.TLSSkipVerify,
		},
	}, nil
}
