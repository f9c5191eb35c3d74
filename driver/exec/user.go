package exec

import (
	"errors"
	"fmt"
	"os"
	"os/user"
	"slices"
	"strconv"
	"strings"
)

// identity is what a process runs as.
type identity struct {
	UID    int   `json:"uid"`
	GID    int   `json:"gid"`
	Groups []int `json:"groups"`
}

// differs reports whether it is another one than the calling process's.
func (id *identity) differs() bool { return id.UID != os.Geteuid() || id.GID != os.Getegid() }

// maxID is the highest uid and gid; the one above means "no change" to the
// kernel.
const maxID = 1<<32 - 2

// splitUser takes a user's two parts apart: "name", "uid", and either with
// ":group".
func splitUser(s string) (name, group string, err error) {
	name, group, colon := strings.Cut(s, ":")
	switch {
	case name == "":
		return "", "", errors.New("has no user; allowed are a name or uid, and either with a colon and a group")
	case colon && group == "":
		return "", "", errors.New("has an empty group; allowed are a name or uid, and either with a colon and a group")
	case strings.ContainsAny(s, "\x00\n/") || strings.Contains(group, ":"):
		return "", "", errors.New("is not a user; allowed are a name or uid, and either with a colon and a group")
	}
	return name, group, nil
}

// number reads a uid or gid.
func number(s string) (int, bool) {
	n, err := strconv.ParseUint(s, 10, 32)
	return int(n), err == nil && n <= maxID
}

// identify looks a user and groups up; nil keeps the calling process's.
func identify(name string, groups []string) (*identity, []Fault) {
	if name == "" {
		if len(groups) > 0 {
			return nil, []Fault{{Field: "groups", Value: strings.Join(groups, ","), Why: "need a user"}}
		}
		return nil, nil
	}
	id, err := lookupUser(name)
	if err != nil {
		return nil, []Fault{{Field: "user", Value: name, Why: err.Error()}}
	}
	var faults []Fault
	for _, g := range groups {
		gid, err := lookupGroup(g)
		if err != nil {
			faults = append(faults, Fault{Field: "groups", Value: g, Why: err.Error()})
			continue
		}
		id.Groups = append(id.Groups, gid)
	}
	slices.Sort(id.Groups)
	id.Groups = slices.Compact(id.Groups)
	return id, faults
}

func lookupUser(s string) (*identity, error) {
	name, group, err := splitUser(s)
	if err != nil {
		return nil, err
	}
	id := &identity{GID: -1}
	known, err := find(name)
	uid, numeric := number(name)
	switch {
	case err == nil:
		if id.UID, id.GID, err = ids(known); err != nil {
			return nil, err
		}
		id.Groups = memberships(known)
	case numeric && group != "":
		id.UID = uid // a uid needs no entry when its group is told
	case numeric:
		return nil, errors.New(`is a uid without an entry in the user database; give its group too, "uid:gid"`)
	default:
		return nil, fmt.Errorf("is not a user of this host: %w", err)
	}
	if group != "" {
		if id.GID, err = lookupGroup(group); err != nil {
			return nil, fmt.Errorf("group: %w", err)
		}
	}
	return id, nil
}

// find looks a user up by name, or by uid when there is no such name.
func find(name string) (*user.User, error) {
	known, err := user.Lookup(name)
	if err == nil {
		return known, nil
	}
	if _, numeric := number(name); numeric {
		return user.LookupId(name)
	}
	return nil, err
}

func ids(u *user.User) (uid, gid int, err error) {
	uid, good := number(u.Uid)
	gid, goodToo := number(u.Gid)
	if !good || !goodToo {
		return 0, 0, fmt.Errorf("has uid %q and gid %q in the user database", u.Uid, u.Gid)
	}
	return uid, gid, nil
}

// memberships are the groups of a user in the group database. A database that
// does not answer gives none, as with login.
func memberships(u *user.User) []int {
	names, err := u.GroupIds()
	if err != nil {
		return nil
	}
	var gids []int
	for _, n := range names {
		if gid, ok := number(n); ok {
			gids = append(gids, gid)
		}
	}
	return gids
}

func lookupGroup(s string) (int, error) {
	if known, err := user.LookupGroup(s); err == nil {
		if gid, ok := number(known.Gid); ok {
			return gid, nil
		}
	}
	if gid, ok := number(s); ok {
		return gid, nil
	}
	return 0, fmt.Errorf("%q is not a group of this host", s)
}
