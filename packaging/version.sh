# Sourced by the build scripts: what both formats agree on.
# shellcheck shell=bash disable=SC2034
source=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
version=${PURELB_PACKAGE_VERSION:-$(sed -n '/^\[workspace.package\]/,/^\[/s/^version = "\(.*\)"/\1/p' "$source/Cargo.toml")}
dist=${PURELB_DIST:-$source/dist}
# PURELB_QUICK: for tests; packed lightly and not checked by lintian or rpmlint.
maintainer="purelb maintainers <maintainers@purelb.invalid>"
# All times in the packages, so that two builds of one commit are the same bytes.
: "${SOURCE_DATE_EPOCH:=$(git -C "$source" log -1 --format=%ct 2>/dev/null || stat -c %Y "$source/Cargo.toml")}"
export SOURCE_DATE_EPOCH LC_ALL=C TZ=UTC
umask 022
