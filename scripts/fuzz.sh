#!/usr/bin/env bash
# Fuzzes one target, or each in turn (also with TARGET `all`): scripts/fuzz.sh [TARGET] [SECONDS]. SECONDS is
# time of the processor, 120 unless given. Ends with a table, and with exit code 1 where something was found.
#
# Seeds are made from tests/data and, when it is set, the arrays under TILEDBFS_ARRAYS. What fails is left in
# fuzz/artifacts; once it is mended, put the input into tests/regressions/<target>/ under the next number.
#
# A stable compiler suffices: the sanitizers, which need another, are left out, and arithmetic and allocations
# are checked instead.
set -euo pipefail
. "$(dirname "$0")/lib.sh"

# Findings after which a target is given up.
MOST=10

what=${1:-all}
seconds=${2:-120}
export CARGO_TARGET_DIR=$TARGET/fuzz
export RUSTC_BOOTSTRAP=1
PATH=$PATH:${CARGO_HOME:-$HOME/.cargo}/bin
command -v cargo >/dev/null || die "cargo not found: install Rust (https://rustup.rs)"
need zstd=zstd cc=build-essential c++=build-essential
command -v cargo-fuzz >/dev/null || cargo install --locked cargo-fuzz

say "seeds"
sources=(tests/data)
if [ -n "${TILEDBFS_ARRAYS:-}" ]; then
    arrays=$TARGET/arrays
    unpack "$TILEDBFS_ARRAYS/public.tar.zst" "$arrays"
    sources+=("$arrays")
fi
rm -rf fuzz/seeds
cargo run --quiet --release --manifest-path fuzz/Cargo.toml --example seeds -- fuzz/seeds "${sources[@]}"

targets=$what
[ "$what" != all ] || targets=$(sed -n 's/^path = "fuzz_targets\/\(.*\)\.rs"/\1/p' fuzz/Cargo.toml)
say "build"
if [ "$what" = all ]; then
    cargo fuzz build --sanitizer none
else
    cargo fuzz build --sanitizer none "$what"
fi
binaries=$CARGO_TARGET_DIR/$(rustc -vV | sed -n 's/^host: //p')/release
ticks=$(getconf CLK_TCK)

fuzzer=
trap '[ -z "$fuzzer" ] || kill -KILL "$fuzzer" 2>/dev/null || true' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP

# once TARGET SECONDS LOG: runs the fuzzer until it has used up that time or found something; adds to `cpu`
# (in ticks) and `found`.
once() {
    local target=$1 used=0 end=$(($2 * ticks)) stat status=0
    "$binaries/$target" "fuzz/corpus/$target" "fuzz/seeds/$target" "tests/regressions/$target" \
        "-artifact_prefix=fuzz/artifacts/$target/" -timeout=10 -rss_limit_mb=1024 -max_len=65536 -len_control=0 \
        -print_final_stats=1 >"$3" 2>&1 &
    fuzzer=$!
    while stat=$(cat "/proc/$fuzzer/stat" 2>/dev/null); do
        # The 14th and the 15th word: time in the program and in the kernel.
        stat=$(awk '{print $3, $14 + $15}' <<<"$stat")
        [ "${stat%% *}" != Z ] || break
        used=${stat##* }
        if [ "$used" -ge "$end" ]; then
            kill -INT "$fuzzer" 2>/dev/null || true
        fi
        sleep 0.5
    done
    wait "$fuzzer" || status=$?
    fuzzer=
    cpu=$((cpu + used))
    # 72: interrupted.
    case $status in 0 | 72) ;; *) found=$((found + 1)) ;; esac
}

rows=()
all_found=0
for target in $targets; do
    [ -d "fuzz/seeds/$target" ] || die "no target is called $target"
    say "$target"
    mkdir -p "fuzz/corpus/$target" "fuzz/artifacts/$target" "fuzz/logs" "tests/regressions/$target"
    cpu=0 found=0 executions=0 edges=0
    while [ "$cpu" -lt $((seconds * ticks)) ] && [ "$found" -lt "$MOST" ]; do
        log=fuzz/logs/$target
        once "$target" $((seconds - cpu / ticks)) "$log"
        executions=$((executions + $(sed -n 's/^stat::number_of_executed_units: *//p' "$log" | tail -1 | grep . || echo 0)))
        edges=$(sed -n 's/.* cov: \([0-9]*\) .*/\1/p' "$log" | sort -n | tail -1)
        grep -E "panicked|^SUMMARY|Test unit written" -A 2 "$log" || true
    done
    rmdir --ignore-fail-on-non-empty "tests/regressions/$target"
    all_found=$((all_found + found))
    rows+=("$(awk -v t="$target" -v c="$cpu" -v k="$ticks" -v e="$executions" -v g="${edges:-0}" -v f="$found" \
        'BEGIN {c /= k; printf "%-20s %8.0f s %12d %10.0f %8d %9d", t, c, e, (c > 0 ? e / c : 0), g, f}')")
    say "${rows[-1]}"
done

printf '\n%-20s %10s %12s %10s %8s %9s\n' target CPU executions "a second" edges findings
printf '%s\n' "${rows[@]}"
[ "$all_found" -eq 0 ]
