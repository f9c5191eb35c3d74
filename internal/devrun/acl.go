package devrun

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/hashicorp/nomad/api"

	"github.com/caravan-sched/caravan/dist/acl"
	"github.com/caravan-sched/caravan/planner/httpapi"
)

// tokens are what the run's parts speak with; all "" without ACLs.
type tokens struct {
	// planner is the planner's, user that of who submits, operator that of who
	// asks the planner.
	planner, user, operator string
}

// makeTokens makes them of the shipped policies. Without ACLs there are none.
func (r *run) makeTokens() error {
	if !r.scenario.acl {
		return nil
	}
	var err error
	for _, t := range []struct {
		name, rules string
		secret      *string
	}{{"caravan-planner", acl.Planner, &r.tokens.planner}, {"caravan-user", acl.User, &r.tokens.user}, {"caravan-operator", acl.Operator, &r.tokens.operator}} {
		if *t.secret, err = r.token(t.name, t.rules); err != nil {
			return err
		}
	}
	return nil
}

// token makes a token with a policy.
func (r *run) token(name, rules string) (secret string, err error) {
	boss := r.cluster.Client()
	if _, err := boss.ACLPolicies().Upsert(&api.ACLPolicy{Name: name, Rules: rules}, nil); err != nil {
		return "", fmt.Errorf("apply policy %s: %w", name, err)
	}
	t, _, err := boss.ACLTokens().Create(&api.ACLToken{Name: name, Type: "client", Policies: []string{name}}, nil)
	if err != nil {
		return "", fmt.Errorf("create token %s: %w", name, err)
	}
	return t.SecretID, nil
}

// playACL runs a gang with the shipped policies, and then lets others try what
// they may not.
func (r *run) playACL(ctx context.Context) error {
	nobody, err := api.NewClient(&api.Config{Address: r.planner.address})
	if err != nil {
		return fmt.Errorf("connect to the gateway: %w", err)
	}
	_, _, err = nobody.Jobs().Register(intruder(new(api.Job)), nil)
	r.report.Checks = append(r.report.Checks, checkRefused("refused:nobody", err, ""))
	if err := r.playGang(ctx); err != nil {
		return err
	}
	reader, err := r.token("reader", strings.ReplaceAll(acl.User, `"submit-job",`, ""))
	if err != nil {
		return err
	}
	weak, err := api.NewClient(&api.Config{Address: r.planner.address, SecretID: reader})
	if err != nil {
		return fmt.Errorf("connect to the gateway: %w", err)
	}
	_, _, err = weak.Jobs().Deregister(trainGang, false, nil)
	r.report.Checks = append(r.report.Checks, checkRefused("refused:stop-without-submit-job", err, ""))
	user, err := httpapi.NewClient(r.planner.address, r.tokens.user, nil)
	if err != nil {
		return err
	}
	_, err = user.Release(ctx, httpapi.ReleaseRequest{All: true})
	r.report.Checks = append(r.report.Checks, checkRefused("refused:release-all-by-a-user", err, string(httpapi.RightManage)))
	_, err = user.Doctor(ctx)
	r.report.Checks = append(r.report.Checks, checkRefused("refused:doctor-by-a-user", err, string(httpapi.RightReadOperator)))
	d, err := r.planner.api.Doctor(ctx)
	if err != nil {
		return fmt.Errorf("examine: %w", err)
	}
	seen, _, err := r.watch.now()
	if err != nil {
		return err
	}
	r.report.Checks = append(r.report.Checks, checkDoctor(d), checkUndisturbed(seen, trainGang))
	return nil
}

// checkRefused: Nomad or the planner refused, and the answer names the right
// that is lacking, "" where Nomad itself does not name it.
func checkRefused(name string, err error, right string) Check {
	var faults []string
	var own *httpapi.Error
	var nomad api.UnexpectedResponseError
	switch {
	case err == nil:
		faults = append(faults, "it was done")
	case errors.As(err, &own) && own.Status == http.StatusForbidden, errors.As(err, &nomad) && nomad.StatusCode() == http.StatusForbidden:
		if !strings.Contains(err.Error(), right) {
			faults = append(faults, fmt.Sprintf("the answer does not name %s: %v", right, err))
		}
	default:
		faults = append(faults, err.Error())
	}
	detail := ""
	if err != nil {
		detail = err.Error()
	}
	return result(name, faults, detail)
}

// checkDoctor: nothing fails in a healthy cluster.
func checkDoctor(d httpapi.Doctor) Check {
	var faults []string
	for _, c := range d.Checks {
		if c.Status == httpapi.CheckFail {
			faults = append(faults, c.Name+": "+c.Detail)
		}
	}
	return result("doctor", faults, count(len(d.Checks), "check")+", none failed")
}
