// Command wiregen writes the Go code for the .proto files below
// internal/nomadplugin/wire. It parses them itself and runs the two code
// generators that go.mod names as tools, so that no protoc is needed and its
// version leaves no trace.
//
// Usage: wiregen MODULE_ROOT
package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"

	"github.com/bufbuild/protocompile"
	"github.com/bufbuild/protocompile/linker"
	"github.com/bufbuild/protocompile/protoutil"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/pluginpb"
)

const (
	wireDir = "internal/nomadplugin/wire"
	module  = "module=github.com/caravan-sched/caravan"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: wiregen MODULE_ROOT")
		os.Exit(2)
	}
	if err := run(context.Background(), os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "wiregen:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, root string) error {
	files, err := generate(ctx, root)
	if err != nil {
		return err
	}
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(root, name), content, 0o644); err != nil {
			return fmt.Errorf("write generated code: %w", err)
		}
	}
	return nil
}

// generate returns the generated files by their path under root.
func generate(ctx context.Context, root string) (map[string][]byte, error) {
	request, err := parse(ctx, root)
	if err != nil {
		return nil, err
	}
	files := map[string][]byte{}
	for _, tool := range []string{"protoc-gen-go", "protoc-gen-go-grpc"} {
		response, err := runTool(ctx, root, tool, request)
		if err != nil {
			return nil, err
		}
		for _, f := range response.GetFile() {
			files[f.GetName()] = []byte(f.GetContent())
		}
	}
	return files, nil
}

// parse makes the request that protoc would make.
func parse(ctx context.Context, root string) (*pluginpb.CodeGeneratorRequest, error) {
	protos, err := filepath.Glob(filepath.Join(root, wireDir, "*", "*.proto"))
	if err != nil {
		return nil, fmt.Errorf("list protobuf files: %w", err)
	}
	if len(protos) == 0 {
		return nil, fmt.Errorf("list protobuf files: none in %s", filepath.Join(root, wireDir))
	}
	request := &pluginpb.CodeGeneratorRequest{Parameter: proto.String(module)}
	for _, name := range protos {
		rel := path.Join(wireDir, filepath.Base(filepath.Dir(name)), filepath.Base(name))
		request.FileToGenerate = append(request.FileToGenerate, rel)
	}
	compiler := protocompile.Compiler{
		Resolver:       protocompile.WithStandardImports(&protocompile.SourceResolver{ImportPaths: []string{root}}),
		SourceInfoMode: protocompile.SourceInfoStandard,
	}
	parsed, err := compiler.Compile(ctx, request.FileToGenerate...)
	if err != nil {
		return nil, fmt.Errorf("parse protobuf files: %w", err)
	}
	request.ProtoFile = inOrder(parsed)
	return request, nil
}

// inOrder lists the files and what they import, imports first.
func inOrder(files linker.Files) []*descriptorpb.FileDescriptorProto {
	var out []*descriptorpb.FileDescriptorProto
	seen := map[string]bool{}
	var visit func(f protoreflect.FileDescriptor)
	visit = func(f protoreflect.FileDescriptor) {
		if seen[f.Path()] {
			return
		}
		seen[f.Path()] = true
		for i := range f.Imports().Len() {
			visit(f.Imports().Get(i).FileDescriptor)
		}
		out = append(out, protoutil.ProtoFromFileDescriptor(f))
	}
	for _, f := range files {
		visit(f)
	}
	return out
}

func runTool(ctx context.Context, root, tool string, request *pluginpb.CodeGeneratorRequest) (*pluginpb.CodeGeneratorResponse, error) {
	input, err := proto.Marshal(request)
	if err != nil {
		return nil, fmt.Errorf("encode request for %s: %w", tool, err)
	}
	cmd := exec.CommandContext(ctx, "go", "tool", tool)
	cmd.Dir = root
	cmd.Stdin = bytes.NewReader(input)
	output, err := cmd.Output()
	if err != nil {
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			return nil, fmt.Errorf("run %s: %w: %s", tool, err, strings.TrimSpace(string(exit.Stderr)))
		}
		return nil, fmt.Errorf("run %s: %w", tool, err)
	}
	response := &pluginpb.CodeGeneratorResponse{}
	if err := proto.Unmarshal(output, response); err != nil {
		return nil, fmt.Errorf("decode response of %s: %w", tool, err)
	}
	if response.GetError() != "" {
		return nil, fmt.Errorf("run %s: %s", tool, response.GetError())
	}
	return response, nil
}
