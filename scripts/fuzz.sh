#!/bin/sh
# Fuzzes one target, or all in turn: scripts/fuzz.sh [TARGET] [SECONDS]
#
# Seeds are made from tests/data and, when it is set, the arrays under TILEDBFS_ARRAYS. What fails is left in fuzz/artifacts; once it is
# mended, put the input into tests/regressions/<target>/ under the next number.
#
# A stable compiler suffices: the sanitizers, which need another, are left out, and arithmetic is checked instead.
set -eu
cd "$(dirname "$0")/.."
export RUSTC_BOOTSTRAP=1
seconds=${2:-120}

if ! command -v cargo-fuzz >/dev/null 2>&1; then
    cargo install --locked cargo-fuzz
fi
export CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-$PWD/fuzz/target}"
cargo run --quiet --release --manifest-path fuzz/Cargo.toml --example seeds -- fuzz/seeds tests/data ${TILEDBFS_ARRAYS:+"$TILEDBFS_ARRAYS"}

targets=${1:-$(ls fuzz/seeds)}
for target in $targets; do
    mkdir -p "fuzz/corpus/$target" "tests/regressions/$target"
    cargo fuzz run --sanitizer none "$target" "fuzz/corpus/$target" "fuzz/seeds/$target" "tests/regressions/$target" -- \
        -max_total_time="$seconds" -timeout=10 -rss_limit_mb=1024 -max_len=65536 -print_final_stats=1
done
