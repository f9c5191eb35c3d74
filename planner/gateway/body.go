package gateway

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"reflect"
	"strings"
	"unicode"

	"github.com/hashicorp/nomad/api"
)

// readBody reads a registration's body, at most limit bytes of it. Nomad does
// not decode request bodies, so an encoded one is refused: only a proxy between
// here and Nomad could make a job of it.
func readBody(w http.ResponseWriter, r *http.Request, limit int64) ([]byte, *problem) {
	for _, line := range r.Header.Values("Content-Encoding") {
		if enc := strings.TrimSpace(line); enc != "" && !strings.EqualFold(enc, "identity") {
			return nil, problemf(http.StatusUnsupportedMediaType,
				"The job's body has the Content-Encoding %q, which Nomad does not read. Send it as plain JSON.", enc)
		}
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, limit))
	var tooLarge *http.MaxBytesError
	switch {
	case errors.As(err, &tooLarge):
		return nil, problemf(http.StatusRequestEntityTooLarge,
			"The job's body is larger than %d bytes, the most that Caravan's gateway reads. Move large templates and files into artifacts.", limit)
	case err != nil:
		return nil, problemf(http.StatusBadRequest, "The job's body could not be read: %v.", err)
	case len(bytes.TrimSpace(body)) == 0:
		return nil, problemf(http.StatusBadRequest, "Request body is empty")
	}
	return body, nil
}

// decode reads a body into out as Nomad does, and refuses what Nomad would let
// pass and another reader could take differently: a second JSON value after the
// first, a key given twice.
func decode(body []byte, out any) *problem {
	// Unmarshal goes first: it bounds how deep the values are nested.
	err := json.Unmarshal(body, out)
	if err == nil {
		err = walkValue(json.NewDecoder(bytes.NewReader(body)), "", 0)
	}
	if err != nil {
		return problemf(http.StatusBadRequest, "The job's body cannot be understood: %v.", err)
	}
	return nil
}

// foldDepth is how deep objects are decoded into structs for sure: the request
// and the job. There, keys that differ only in case are one field to Nomad;
// deeper they may be a map of the user's own keys.
const foldDepth = 2

// walkValue checks that no object in the next JSON value has a key twice.
func walkValue(dec *json.Decoder, where string, depth int) error {
	token, err := dec.Token()
	if err != nil {
		return err
	}
	switch token {
	case json.Delim('{'):
		seen := map[string]bool{}
		for dec.More() {
			token, err := dec.Token()
			if err != nil {
				return err
			}
			key, _ := token.(string)
			folded := key
			if depth < foldDepth {
				folded = strings.Map(fold, key)
			}
			if seen[folded] {
				return fmt.Errorf("the key %q comes twice in %s", key, cmpOr(where, "the request"))
			}
			seen[folded] = true
			if err := walkValue(dec, where+"."+key, depth+1); err != nil {
				return err
			}
		}
	case json.Delim('['):
		for i := 0; dec.More(); i++ {
			if err := walkValue(dec, where+"[]", depth+1); err != nil {
				return err
			}
		}
	default:
		return nil
	}
	_, err = dec.Token()
	return err
}

// fold maps the runes that encoding/json takes for the same to one of them.
func fold(r rune) rune {
	least := r
	for next := unicode.SimpleFold(r); next != r; next = unicode.SimpleFold(next) {
		least = min(least, next)
	}
	return least
}

func cmpOr(s, otherwise string) string {
	if s == "" {
		return otherwise
	}
	return strings.TrimPrefix(s, ".")
}

// checkJob checks what Nomad checks before it looks into a job, and that no
// list in it has a null: Nomad's own conversion would fail on it.
func checkJob(job *api.Job, pathID string) *problem {
	switch {
	case job == nil:
		return problemf(http.StatusBadRequest, "Job must be specified")
	case job.ID == nil || *job.ID == "":
		return problemf(http.StatusBadRequest, "Job ID hasn't been provided")
	case pathID != "" && *job.ID != pathID:
		return problemf(http.StatusBadRequest, "The job's ID %q is not the path's, %q.", *job.ID, pathID)
	}
	if at := findNull(reflect.ValueOf(job).Elem(), "Job"); at != "" {
		return problemf(http.StatusBadRequest, "%s is null.", at)
	}
	return nil
}

// findNull returns the place of the first nil element of a slice or map of
// pointers below v, "" if there is none.
func findNull(v reflect.Value, at string) string {
	switch v.Kind() {
	case reflect.Pointer:
		if v.IsNil() {
			return ""
		}
		return findNull(v.Elem(), at)
	case reflect.Struct:
		for i := range v.NumField() {
			if f := v.Type().Field(i); f.IsExported() {
				if found := findNull(v.Field(i), at+"."+f.Name); found != "" {
					return found
				}
			}
		}
	case reflect.Slice:
		for i := range v.Len() {
			if found := nullElement(v.Index(i), fmt.Sprintf("%s[%d]", at, i)); found != "" {
				return found
			}
		}
	case reflect.Map:
		for iter := v.MapRange(); iter.Next(); {
			if found := nullElement(iter.Value(), fmt.Sprintf("%s[%v]", at, iter.Key())); found != "" {
				return found
			}
		}
	}
	return ""
}

func nullElement(v reflect.Value, at string) string {
	if v.Kind() == reflect.Pointer && v.IsNil() {
		return at
	}
	return findNull(v, at)
}

// namespaceOf is the namespace that Nomad registers a job in: the query's, else
// the request's, else the job's, else the default one.
func namespaceOf(r *http.Request, write api.WriteRequest, job *api.Job) string {
	if ns := r.URL.Query().Get("namespace"); ns != "" {
		return ns
	}
	if write.Namespace != "" {
		return write.Namespace
	}
	if job.Namespace != nil && *job.Namespace != "" {
		return *job.Namespace
	}
	return api.DefaultNamespace
}

// regionOf is the region that Nomad sends a registration to; "" and "global"
// mean the agent's own.
func regionOf(r *http.Request, write api.WriteRequest, job *api.Job) string {
	region := r.URL.Query().Get("region")
	if write.Region != "" {
		region = write.Region
	}
	if region == "" && job.Region != nil {
		region = *job.Region
	}
	if region == api.GlobalRegion {
		return ""
	}
	return region
}
