#!/usr/bin/env bash
# The files of both packages, as a tree each, for whatever packs them.
#
#   packaging/stage.sh deb|rpm DIRECTORY      makes DIRECTORY/purelb and DIRECTORY/purelbctl
#
# PURELB_BINARIES           directory with purelbd and purelbctl; without it they are built
# PURELB_PACKAGE_VERSION    instead of the workspace's version
set -euo pipefail
format=$1 out=$2
source=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
here=$source/packaging
umask 022

fail() { echo "packaging: $*" >&2; exit 1; }
put() { install -D -p -m "$1" "$2" "$3"; }
# A compressed file whose bytes depend on its content alone.
zipped() { install -d "$(dirname "$1")"; gzip -9n >"$1.gz"; chmod 0644 "$1.gz"; }

binaries=${PURELB_BINARIES-}
if [[ -z $binaries ]]; then
    # Without the packages' date: build scripts watch it, and would build half of the
    # dependencies anew with every commit. Nothing in the programs depends on it.
    (cd "$source" && env -u SOURCE_DATE_EPOCH cargo build --quiet --locked --profile dist -p purelbd -p purelbctl -p purelb-allocator)
    binaries=${CARGO_TARGET_DIR:-$source/target}/dist
fi
for program in purelbd purelbctl; do
    [[ -x $binaries/$program ]] || fail "no program $program in $binaries; make build makes it"
done

# --- purelb: the daemon
root=$out/purelb
put 0755 "$binaries/purelbd" "$root/usr/sbin/purelbd"
put 0755 "$here/systemd/purelbd-unit" "$root/usr/libexec/purelb/purelbd-unit"
units=$root/usr/lib/systemd/system
put 0644 "$here/systemd/purelbd.service" "$units/purelbd.service"
put 0644 "$here/systemd/50-limits.conf" "$units/purelbd.service.d/50-limits.conf"
put 0644 "$here/systemd/90-purelb.preset" "$root/usr/lib/systemd/system-preset/90-purelb.preset"
put 0644 "$here/systemd/purelb.sysusers" "$root/usr/lib/sysusers.d/purelb.conf"
put 0644 "$here/systemd/purelb.tmpfiles" "$root/usr/lib/tmpfiles.d/purelb.conf"
put 0644 "$here/etc/purelbd.toml" "$root/etc/purelb/purelbd.toml"
install -d -m 0755 "$root/etc/purelb/purelbd.d"
put 0644 "$here/completions/purelbd.bash" "$root/usr/share/bash-completion/completions/purelbd"
zipped "$root/usr/share/man/man8/purelbd.8" <"$here/man/purelbd.8"
# The settings are described once, in the file itself.
{
    cat "$here/man/purelbd.toml.5"
    printf '.SH SETTINGS\n.nf\n'
    sed -e 's/\\/\\e/g' -e 's/-/\\-/g' -e "s/^\([.']\)/\\\\\&\1/" "$here/etc/purelbd.toml"
    printf '.fi\n'
} | zipped "$root/usr/share/man/man5/purelbd.toml.5"

# --- purelbctl: the operator's program, and the manifests it belongs to
root=$out/purelbctl
ctl=$binaries/purelbctl
put 0755 "$ctl" "$root/usr/bin/purelbctl"
pages=$(mktemp -d)
trap 'rm -rf "$pages"' EXIT
"$ctl" man "$pages" >/dev/null
for page in "$pages"/*.1; do
    name=${page##*/}
    zipped "$root/usr/share/man/man1/$name" <"$page"
done
zsh=vendor-completions
[[ $format == rpm ]] && zsh=site-functions
completion() { "$ctl" completion "$1" >"$pages/completion"; put 0644 "$pages/completion" "$root/usr/share/$2"; }
completion bash bash-completion/completions/purelbctl
completion zsh "zsh/$zsh/_purelbctl"
completion fish fish/vendor_completions.d/purelbctl.fish
(cd "$source/deploy/k8s" && find . -type f) | while read -r file; do
    put 0644 "$source/deploy/k8s/$file" "$root/usr/share/purelb/k8s/$file"
done
