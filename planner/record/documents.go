package record

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/hashicorp/nomad/api"
	"golang.org/x/sync/errgroup"
)

// Documents keeps JSON documents about jobs in Nomad Variables below a root of
// their own, laid out like the records: a head, written by check-and-set, and
// parts for what does not fit into it.
type Documents struct {
	store *Store
	root  string
}

// NewDocuments returns the documents below caravan/ROOT in a Nomad namespace;
// "" is "default".
func NewDocuments(client *api.Client, namespace, root string) *Documents {
	return &Documents{store: NewStore(client, namespace), root: "caravan/" + root}
}

// Document is one of them.
type Document struct {
	// Index is the Variable's, for check-and-set; 0: not stored yet.
	Index uint64
	JSON  []byte
}

// itemName holds the document's names, for people.
const itemName = "name"

func (d *Documents) path(names []string) string {
	return d.root + strings.TrimPrefix(headPath(names[0], strings.Join(names[1:], "\x00")), Root)
}

// Put writes the document of those names (a namespace, a job, …) if nobody has
// written it since index, and returns its new index; else ErrConflict.
func (d *Documents) Put(ctx context.Context, index uint64, doc []byte, names ...string) (uint64, error) {
	next, err := d.put(ctx, index, doc, names)
	if err != nil {
		return 0, fmt.Errorf("write %s of %q: %w", d.root, names, err)
	}
	return next, nil
}

func (d *Documents) put(ctx context.Context, index uint64, doc []byte, names []string) (uint64, error) {
	packed, err := pack(doc)
	if err != nil {
		return 0, err
	}
	sum := sha256.Sum256(doc)
	id := hex.EncodeToString(sum[:8])
	path := d.path(names)
	items := api.VariableItems{itemName: strings.Join(names, " "), itemBlobID: id}
	if len(packed) <= inlineSize {
		items[itemBlob] = packed
	} else {
		parts := slices.Collect(slices.Chunk([]byte(packed), partSize))
		if len(parts) > maxParts {
			return 0, fmt.Errorf("it is too large, %d bytes compressed", len(packed))
		}
		for i, part := range parts {
			v := &api.Variable{Namespace: d.store.namespace, Path: partPath(path, id, i), Items: api.VariableItems{itemPart: string(part)}}
			if _, _, err := d.store.vars.Update(v, d.store.write(ctx)); err != nil {
				return 0, err
			}
		}
		items[itemParts] = strconv.Itoa(len(parts))
	}
	v := &api.Variable{Namespace: d.store.namespace, Path: path, Items: items, ModifyIndex: index}
	write := d.store.vars.CheckedUpdate
	if index == 0 {
		write = d.store.vars.CheckedCreate
	}
	out, _, err := write(v, d.store.write(ctx))
	if err != nil {
		return 0, conflict(err)
	}
	d.dropOldParts(ctx, path, id)
	return out.ModifyIndex, nil
}

// dropOldParts removes the parts of other contents; what stays hurts nobody.
func (d *Documents) dropOldParts(ctx context.Context, path, id string) {
	metas, _, err := d.store.vars.PrefixList(path+"/", d.store.query(ctx))
	if err != nil {
		return
	}
	for _, m := range metas {
		if id != "" && strings.HasPrefix(m.Path, path+"/"+id+"-") {
			continue
		}
		if _, err := d.store.vars.Delete(m.Path, d.store.write(ctx)); err != nil {
			return
		}
	}
}

// Get reads a document; ErrNotFound if there is none.
func (d *Documents) Get(ctx context.Context, names ...string) (Document, error) {
	doc, err := d.read(ctx, d.path(names))
	if err != nil {
		return doc, fmt.Errorf("read %s of %q: %w", d.root, names, err)
	}
	return doc, nil
}

func (d *Documents) read(ctx context.Context, path string) (Document, error) {
	v, _, err := d.store.vars.Peek(path, d.store.query(ctx))
	if err != nil {
		return Document{}, err
	}
	if v == nil {
		return Document{}, ErrNotFound
	}
	h := &head{blobID: v.Items[itemBlobID], inline: v.Items[itemBlob]}
	if n := v.Items[itemParts]; n != "" {
		if h.parts, err = strconv.Atoi(n); err != nil || h.parts < 1 || h.parts > maxParts {
			return Document{Index: v.ModifyIndex}, fmt.Errorf("%w: it has %q parts", ErrDamaged, n)
		}
	}
	packed := h.inline
	if h.parts > 0 {
		if packed, err = d.store.readParts(ctx, path, h); err != nil {
			return Document{Index: v.ModifyIndex}, err
		}
	}
	raw, err := unpack(packed)
	if err != nil {
		return Document{Index: v.ModifyIndex}, err
	}
	if sum := sha256.Sum256(raw); hex.EncodeToString(sum[:8]) != h.blobID || !json.Valid(raw) {
		return Document{Index: v.ModifyIndex}, fmt.Errorf("%w: its content is not what its head names", ErrDamaged)
	}
	return Document{Index: v.ModifyIndex, JSON: raw}, nil
}

// List reads all documents, and leaves out those that are damaged: whoever
// needs one of them finds ErrDamaged.
func (d *Documents) List(ctx context.Context) ([]Document, error) {
	metas, _, err := d.store.vars.PrefixList(d.root+"/", d.store.query(ctx))
	if err != nil {
		return nil, fmt.Errorf("list %s: %w", d.root, err)
	}
	var paths []string
	for _, m := range metas {
		if rest := strings.TrimPrefix(m.Path, d.root+"/"); !strings.Contains(rest, "/") {
			paths = append(paths, m.Path)
		}
	}
	slices.Sort(paths)
	out := make([]Document, len(paths))
	group, gctx := errgroup.WithContext(ctx)
	group.SetLimit(readers)
	for i, path := range paths {
		group.Go(func() error {
			doc, err := d.read(gctx, path)
			if err != nil && !errors.Is(err, ErrNotFound) && !errors.Is(err, ErrDamaged) {
				return err
			}
			out[i] = doc
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return nil, fmt.Errorf("list %s: %w", d.root, err)
	}
	return slices.DeleteFunc(out, func(doc Document) bool { return doc.JSON == nil }), nil
}

// Delete removes a document, whoever has written it last.
func (d *Documents) Delete(ctx context.Context, names ...string) error {
	path := d.path(names)
	if _, err := d.store.vars.Delete(path, d.store.write(ctx)); err != nil {
		return fmt.Errorf("delete %s of %q: %w", d.root, names, err)
	}
	d.dropOldParts(ctx, path, "")
	return nil
}
