#!/usr/bin/env bash
# Makes, once, what the systemd tests boot and the hands of their administrator: the root
# file system of a small Debian, and kubectl. Prints the directory that holds `root` and
# `kubectl`.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
cache=${PURELB_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/purelb}/systemd
# The kind of system a node is; rpm and dnf, to install the RPM packages for real; kmod, for
# the virtual machine that boots the same root.
suite=bookworm
packages=systemd,systemd-sysv,dbus,init-system-helpers,passwd,iproute2,rpm,dnf,kmod
# The release whose kubectl knows what the API server of the tests does.
kubectl_suite=trixie

# Tells rpm which libraries the root has, in rpm's own words, so that dnf can check what
# our packages ask for: a package without files that provides them.
tell_rpm() {
    local root=$1 work=$2
    {
        printf 'Name: distribution\nVersion: 1\nRelease: 1\nSummary: what this system has\nLicense: none\n'
        printf 'BuildArch: noarch\nAutoReqProv: no\nProvides: systemd\nProvides: /bin/sh\nProvides: rtld(GNU_HASH)\n'
        find -L "$root/usr/lib" \( -name libc.so.6 -o -name libgcc_s.so.1 -o -name libsystemd.so.0 -o -name 'ld-linux*.so.*' \) |
            /usr/lib/rpm/elfdeps --provides | sort -u | sed 's/^/Provides: /'
        printf '%%description\nSee the summary.\n%%files\n'
    } >"$work/distribution.spec"
    rpmbuild -bb --quiet --define "_topdir $work/top" --define "_rpmdir $work" "$work/distribution.spec"
    mv "$work"/noarch/distribution-*.rpm "$root/distribution.rpm"
    chroot "$root" rpm -i /distribution.rpm
    rm -rf "$root/distribution.rpm" "$work"/{distribution.spec,top,noarch}
}

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
    # Both at once: most of it is waiting for the archive.
    mmdebstrap --quiet --variant=extract --include=kubectl "$kubectl_suite" "$new/tools" >"$new/tools.log" 2>&1 &
    mmdebstrap --quiet --variant=minbase --include="$packages" "$suite" "$new/root" >"$new/log" 2>&1 ||
        { cat "$new/log" >&2; wait; exit 1; }
    wait $! || { cat "$new/tools.log" >&2; exit 1; }
    tell_rpm "$new/root" "$new" >>"$new/log" 2>&1 || { cat "$new/log" >&2; exit 1; }
    rm -f "$new/root/etc/hostname"
    : >"$new/root/etc/machine-id"
    mkdir -p "$new/root/lib/modules"
    install -m 0755 guest-init "$new/root/guest-init"
    mv "$new/tools/usr/bin/kubectl" "$new/kubectl"
    rm -rf "$new"/{tools,tools.log,log}
    touch "$new/ready"
    mv "$new" "$dir"
    trap - EXIT
    echo "made in $((SECONDS - started)) s" >&2
fi
echo "$dir"
