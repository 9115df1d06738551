#!/usr/bin/env bash
# Runs the suites named (default: all), each to its end, and prints a summary line
# per suite with counts. Exits 0 only if every suite passed.
#
#   format clippy deny layering unit sim integration e2e packages systemd
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

all=(format clippy deny layering unit sim integration e2e packages systemd)
cache=${PURELB_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/purelb}
export PATH=$cache/tools/bin:$PATH CARGO_TERM_COLOR=${CARGO_TERM_COLOR:-never}
logs=$(mktemp -d)
trap 'kill $(jobs -p) 2>/dev/null; rm -rf "$logs"' EXIT

tested="--locked --workspace --exclude purelb-sim --exclude purelb-e2e --exclude purelb-systemd"

format() { cargo fmt --all --check; }
clippy() { tests/setup.sh build && cargo clippy --quiet --locked --workspace --all-targets -- -D warnings; }
deny() { tests/setup.sh deny && cargo deny --locked check bans licenses sources; }
layering() { tests/layering.sh; }
# Unit and property tests: a compiler is all they need.
# shellcheck disable=SC2086
unit() { tests/setup.sh build && cargo test --no-fail-fast $tested --lib --bins; }
sim() { cargo test --locked --profile sim -p purelb-sim -- --nocapture; }
# The programs as they are packaged, for the suites that run them as processes: built once, before
# a test's clock runs, and found by the tests, which then build nothing themselves. `packages`
# has nothing left to compile. Linking them keeps one core busy for minutes, so it begins beside
# the suites that measure nothing (clippy, unit, sim), and is waited for before the first that does.
start_programs() {
    [[ -z ${PURELB_E2E_PROGRAMS:-} ]] || return 0
    {
        tests/setup.sh build && tests/controlplane/build.sh &&
            cargo build --locked --profile dist -p purelbd -p purelbctl -p purelb-allocator
        echo $? >"$logs/.programs.code"
    } >"$logs/.programs" 2>&1 </dev/null &
}
programs() {
    [[ -z ${PURELB_E2E_PROGRAMS:-} ]] || return 0
    [[ -e $logs/.programs.code ]] || echo "waiting for the programs to be built"
    until [[ -e $logs/.programs.code ]]; do sleep 0.5; done
    (($(<"$logs/.programs.code") == 0)) || { cat "$logs/.programs"; return 1; }
    export PURELB_E2E_PROGRAMS=${CARGO_TARGET_DIR:-$PWD/target}/dist
    export PURELB_E2E_SHIPPED=$PURELB_E2E_PROGRAMS
}
# Real netlink, real API server, embedded API: one crate at a time.
# shellcheck disable=SC2086
integration() {
    tests/setup.sh build test && tests/controlplane/build.sh && programs && cargo test --no-fail-fast $tested --test '*'
}
# The shipped programs, as processes, in the lab, on the real API server.
e2e() {
    tests/setup.sh build test docs monitoring kubectl && tests/controlplane/build.sh && programs &&
        cargo test --no-fail-fast --locked -p purelb-e2e --tests -- --nocapture
}
packages() { programs && make --no-print-directory deb rpm; }
# The packages as shipped, on nodes that boot systemd. What the tests run beside them is
# built before, too: the programs, and the netlink tests for the virtual machine.
# shellcheck disable=SC2086
systemd() {
    { [[ -e $logs/packages ]] || packages; } && tests/setup.sh build test systemd && tests/controlplane/build.sh &&
        programs && cargo test $tested --test netlink --no-run &&
        PURELB_PACKAGES=$PWD/dist PURELB_BINARIES=$PURELB_E2E_PROGRAMS \
            cargo test --no-fail-fast --locked -p purelb-systemd -- --nocapture
}

# Sums one column ("passed", "failed") over all closing lines of test binaries.
count() { grep -E '^test result:' "$logs/$1" | grep -oE "[0-9]+ $2" | awk '{ n += $1 } END { print n + 0 }'; }

(($#)) || set -- "${all[@]}"
lines=() passed=0 failed=0
for suite in "$@"; do
    [[ " integration e2e packages systemd " != *" $suite "* ]] || { start_programs; break; }
done
for suite in "$@"; do
    [[ " ${all[*]} " == *" $suite "* ]] || { echo "run.sh: no suite '$suite'; there are: ${all[*]}" >&2; exit 2; }
    echo "=== $suite"
    started=$SECONDS
    "$suite" 2>&1 | tee "$logs/$suite"
    code=${PIPESTATUS[0]}
    p=$(count "$suite" passed) f=$(count "$suite" failed)
    # A check without counts of its own is one test; so is a suite that died early.
    ((code == 0 && p + f == 0)) && p=1
    ((code != 0 && f == 0)) && f=1
    ((passed += p, failed += f))
    ok=ok; ((code == 0)) || ok=FAILED
    lines+=("$(printf '%-12s %-6s %5d passed %3d failed %5ds' "$suite" "$ok" "$p" "$f" $((SECONDS - started)))")
done
echo "=== summary"
printf '%s\n' "${lines[@]}"
grep -hE '^(failure-table|figure|sim):' "$logs"/* 2>/dev/null
grep -E '^test .* FAILED$|^error(\[|:)' "$logs"/* 2>/dev/null | sed "s#^$logs/#failed: #"
echo "$passed passed, $failed failed"
((failed == 0))
