#!/bin/sh
# Builds the servers of Kubernetes, kubelet, kubectl, and kwok into a folder, for the tests in Kubernetes.
set -eu
out=$(mkdir -p "$1/module" && cd "$1" && pwd)
version=1.35.4
export CGO_ENABLED=0 GOFLAGS='-mod=mod -p=1 -trimpath -ldflags=-s'
GOBIN=$out GOFLAGS='-p=1 -trimpath -ldflags=-s' go install sigs.k8s.io/kwok/cmd/kwok@v0.7.0
cd "$out/module"
rm -f go.mod go.sum
go mod init servers
# The module names its parts with a version that they have only in its repository.
of=$(go mod download -json "k8s.io/kubernetes@v$version" | sed -n 's/.*"GoMod": "\(.*\)".*/\1/p')
for part in $(sed -n 's/^\t\(k8s.io\/[a-z-]*\) v0\.0\.0$/\1/p' "$of"); do
	go mod edit -replace="$part=$part@v0.${version#1.}"
done
go mod edit -require="k8s.io/kubernetes@v$version"
for each in kube-apiserver kube-controller-manager kube-scheduler kubectl kubelet; do
	go build -o "$out/" "k8s.io/kubernetes/cmd/$each"
done
