#!/usr/bin/env bash
# Proves the layering: decisions (core, wire) reach no IO, and nothing that is
# shipped reaches the test kit.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

failed=0
# forbid CRATE PATTERN WHY: no dependency of CRATE, however deep, matches PATTERN.
forbid() {
    local found
    found=$(cargo tree --locked -e normal,build --prefix none -p "$1" | awk '{print $1}' | sort -u | grep -xE "$2" || true)
    if [[ -n $found ]]; then
        echo "layering: $1 reaches $(tr '\n' ' ' <<<"$found"): $3" >&2
        failed=1
    else
        echo "layering: $1 is free of $2"
    fi
}

io='tokio|kube|kube-.*|k8s-openapi|tonic|hyper|rtnetlink|netlink-.*|nix|socket2|mio|async-.*'
forbid purelb-core "$io" "decisions must stay free of IO; move it to an adapter"
forbid purelb-wire "$io" "codecs must stay free of IO"
for program in purelbd purelbctl purelb-allocator; do
    cargo metadata --locked --no-deps --format-version 1 | grep -q "\"name\":\"$program\"" || continue
    forbid "$program" 'purelb-kit|purelb-sim|purelb-e2e|rcgen|proptest' "test code must not be linked into shipped programs"
done
exit $failed
