package config

import (
	"fmt"
	"os"
	"strings"

	"github.com/hashicorp/nomad/api"
)

// ReadToken returns the planner's ACL token, "" if there is none. A token file
// is read anew at every call.
func (n Nomad) ReadToken() (string, error) {
	if n.TokenFile == "" {
		return n.Token, nil
	}
	b, err := os.ReadFile(n.TokenFile)
	if err != nil {
		return "", fmt.Errorf("read nomad.token_file: %w", err)
	}
	token := strings.TrimSpace(string(b))
	if token == "" {
		return "", fmt.Errorf("read nomad.token_file: %s is empty", n.TokenFile)
	}
	return token, nil
}

// ClientConfig makes the configuration of Nomad's API client, without a token.
func (n Nomad) ClientConfig() *api.Config {
	return &api.Config{
		Address: n.Address,
		Region:  n.Region,
		TLSConfig: &api.TLSConfig{
			CACert:        n.CAFile,
			CAPath:        n.CAPath,
			ClientCert:    n.CertFile,
			ClientKey:     n.KeyFile,
			TLSServerName: n.TLSServerName,
			Insecure:      n.TLSSkipVerify,
		},
	}
}
