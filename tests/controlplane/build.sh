#!/usr/bin/env bash
# Prints a directory that holds kube-apiserver, kube-controller-manager and
# etcd. Builds them from the module beside this file if the cache has none.
#
#   PURELB_CACHE   where built things are kept (default: ~/.cache/purelb)
#
# Two callers at once are safe: one builds, the other waits for it.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"

kubernetes=$(awk '$1 == "k8s.io/kubernetes" && NF > 1 { print $2 }' go.mod)
etcd=$(awk '$1 == "go.etcd.io/etcd/server/v3" && NF > 1 { print $2 }' go.mod)
[[ -n $kubernetes && -n $etcd ]] || { echo "build.sh: go.mod names no version of kubernetes or etcd" >&2; exit 1; }
minor=${kubernetes#v1.}; minor=${minor%%.*}

cache=${PURELB_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/purelb}
# The dependency list is part of the name: another go.sum is another build.
sum=$(sha256sum go.sum | cut -c1-12)
out=$cache/controlplane/$kubernetes-etcd-$etcd-$sum
tools=(etcd kube-apiserver kube-controller-manager)

complete() { local t; for t in "${tools[@]}"; do [[ -x $out/$t ]] || return 1; done; }

if ! complete; then
    mkdir -p "$cache/controlplane"
    exec 9>"$cache/controlplane/.lock"
    flock 9
fi
if ! complete; then
    if ! command -v go >/dev/null; then
        echo "build.sh: no Go compiler found; install Go 1.26 or newer (it is needed once, to build the control plane)," >&2
        echo "          or point KUBEBUILDER_ASSETS at a directory with ${tools[*]}" >&2
        exit 1
    fi
    echo "building kube-apiserver, kube-controller-manager $kubernetes and etcd $etcd (once; about 8 minutes on 2 cores)" >&2
    part=$out.part
    rm -rf "$part"; mkdir -p "$part"
    v=k8s.io/component-base/version
    flags="-s -w -X $v.gitVersion=$kubernetes -X $v.gitMajor=1 -X $v.gitMinor=$minor"
    export CGO_ENABLED=0 GOFLAGS=-mod=readonly
    go build -trimpath -ldflags '-s -w' -o "$part/etcd" go.etcd.io/etcd/server/v3 >&2
    go build -trimpath -ldflags "$flags" -o "$part/" k8s.io/kubernetes/cmd/kube-apiserver \
        k8s.io/kubernetes/cmd/kube-controller-manager >&2
    rm -rf "$out"; mv "$part" "$out"
fi
echo "$out"
