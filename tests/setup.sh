#!/usr/bin/env bash
# Installs what the build and the tests need and this machine lacks. Prints nothing
# when all is there.
#
#   tests/setup.sh [build|test|package|systemd|monitoring|kubectl|deny|docs]...    default: build test
set -euo pipefail

declare -A packages=(
    [build]="gcc libc6-dev pkg-config libsystemd-dev"
    [test]="iproute2 nftables procps tar util-linux"
    [package]="dpkg-dev lintian rpm rpmlint"
    [systemd]="systemd systemd-container mmdebstrap debian-archive-keyring dpkg-dev rpm util-linux user-mode-linux"
)
cache=${PURELB_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/purelb}

fail() { echo "setup: $*" >&2; exit 1; }

# The Debian packages of one purpose, as far as they are missing.
install_packages() {
    local missing=() package
    # Another copy of this may be at it: dpkg serves one at a time.
    mkdir -p "$cache"
    exec 7>"$cache/.packages.lock"; flock 7
    for package in $1; do
        dpkg-query -W -f '${Status}' "$package" 2>/dev/null | grep -q 'ok installed' || missing+=("$package")
    done
    ((${#missing[@]})) || { exec 7>&-; return 0; }
    command -v apt-get >/dev/null || fail "please install these packages, or what your system calls them: ${missing[*]}"
    ((EUID == 0)) || fail "run 'sudo apt-get install ${missing[*]}' first, or run this as root"
    echo "installing ${missing[*]}" >&2
    export DEBIAN_FRONTEND=noninteractive
    # What a package starts must not keep the lock.
    apt-get install -y -q --no-install-recommends "${missing[@]}" >/dev/null 2>&1 7>&- ||
        { apt-get update -q >/dev/null 7>&- &&
            apt-get install -y -q --no-install-recommends "${missing[@]}" >/dev/null 7>&-; } ||
        fail "apt-get could not install: ${missing[*]}"
    exec 7>&-
}

# Prometheus and promtool. The package would start a server of its own on this machine.
install_prometheus() {
    command -v prometheus >/dev/null && command -v promtool >/dev/null && return
    install_packages prometheus
    [[ ! -d /run/systemd/system ]] || systemctl --quiet disable --now prometheus
}

# Any release will do; the guides' commands are old ones.
install_kubectl() { command -v kubectl >/dev/null || install_packages kubernetes-client; }

# A cargo tool of one version, built once and kept in the cache.
install_tool() {
    mkdir -p "$cache/tools"
    exec 9>"$cache/tools/.lock"; flock 9
    grep -qF "\"$1 $2 " "$cache/tools/.crates2.json" 2>/dev/null && return
    echo "building $1 $2 (once)" >&2
    cargo install --quiet --locked --version "$2" --root "$cache/tools" "$1"
}

# The gRPC clients that the automation guide's examples use, kept in the cache: grpcurl,
# and Python with gRPC in an environment of its own.
install_grpc_clients() {
    local python=$cache/tools/python
    mkdir -p "$cache/tools/bin"
    exec 8>"$cache/tools/.lock-grpc"; flock 8
    if [[ ! -x $cache/tools/bin/grpcurl ]]; then
        command -v go >/dev/null || fail "no Go compiler found; it builds grpcurl"
        echo "building grpcurl (once)" >&2
        GOBIN=$cache/tools/bin go install github.com/fullstorydev/grpcurl/cmd/grpcurl@v1.9.3
    fi
    if ! "$python/bin/python" -c 'import grpc_reflection' 2>/dev/null; then
        install_packages "python3 python3-venv"
        echo "installing grpcio for Python (once)" >&2
        python3 -m venv "$python"
        "$python/bin/pip" install --quiet --disable-pip-version-check grpcio==1.85.1 grpcio-reflection==1.85.1 protobuf==7.36.2
    fi
}

command -v cargo >/dev/null || fail "no Rust compiler found; install Rust 1.95 or newer (https://rustup.rs)"

(($#)) || set -- build test
for purpose in "$@"; do
    case $purpose in
    build | test | package | systemd) install_packages "${packages[$purpose]}" ;;
    monitoring) install_prometheus ;;
    kubectl) install_kubectl ;;
    deny) install_tool cargo-deny 0.20.2 ;;
    docs) install_grpc_clients ;;
    *) fail "unknown purpose '$purpose': use build, test, package, systemd, monitoring, kubectl, deny or docs" ;;
    esac
done
