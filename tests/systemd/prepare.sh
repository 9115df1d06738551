#!/usr/bin/env bash
# Makes, once, what the systemd tests boot and the hands of their administrator: the root
# file system of a small Debian, and kubectl. Prints the directory that holds `root` and
# `kubectl`.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
cache=${PURELB_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/purelb}/systemd
# The kind of system a node is; rpm, to run the scripts of the RPM package for real; kmod,
# for the virtual machine that boots the same root.
suite=bookworm
packages=systemd,systemd-sysv,dbus,init-system-helpers,passwd,iproute2,rpm,kmod
# The release that has a kubectl that knows "create token".
kubectl_suite=trixie

recipe=$(cat prepare.sh guest-init | sha256sum | cut -c1-12)
dir=$cache/$recipe
mkdir -p "$cache"
exec 9>"$cache/.lock"
flock 9
if [[ ! -e $dir/ready ]]; then
    ((EUID == 0)) || { echo "prepare.sh: needs root, to make a root file system" >&2; exit 1; }
    new=$cache/new.$$
    trap 'rm -rf "$new"' EXIT
    mkdir "$new"
    started=$SECONDS
    echo "making a root file system to boot (once)" >&2
    mmdebstrap --quiet --variant=minbase --include="$packages" "$suite" "$new/root" >"$new/log" 2>&1 ||
        { cat "$new/log" >&2; exit 1; }
    rm -f "$new/root/etc/hostname"
    : >"$new/root/etc/machine-id"
    mkdir -p "$new/root/lib/modules"
    install -m 0755 guest-init "$new/root/guest-init"
    mmdebstrap --quiet --variant=extract --include=kubectl "$kubectl_suite" "$new/tools" >"$new/log" 2>&1 ||
        { cat "$new/log" >&2; exit 1; }
    mv "$new/tools/usr/bin/kubectl" "$new/kubectl"
    rm -rf "$new/tools" "$new/log"
    touch "$new/ready"
    mv "$new" "$dir"
    trap - EXIT
    echo "made in $((SECONDS - started)) s" >&2
fi
echo "$dir"
