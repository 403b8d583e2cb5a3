#!/usr/bin/env bash
# Installs what the tests need and runs all of them. Stops at the first stage that fails until the program is
# built; the last line counts the checks.
# TILEDBFS_ARRAYS may name a folder with public.tar.zst, arrays written by many releases of TileDB, which are
# then read too;
# TILEDBFS_VIEWS one with public.tar.zst, arrays with what libtiledb reads from them at many times and in many
# parts;
# TILEDBFS_REAL one with real.tar.zst, arrays written by other programs, with what libtiledb reads of them;
# TILEDBFS_LOAD_SECONDS is how long 64 threads then read them at once.
set -euo pipefail
. "$(dirname "$0")/lib.sh"

stage=start
scratch=$(mktemp -d)
# A line a stage: what it counted.
summary=$scratch/summary
# Of each stage that failed, how it began to.
failures=$scratch/failures
touch "$summary" "$failures"
goes_on=
# Stages wait for mounts, stores and packages nearly as much as they compute.
lanes=$(($(nproc) + 1))

finish() {
    local status=$? background
    # What has ended meanwhile is no error.
    for background in $(jobs -pr); do
        kill "$background" 2>/dev/null || true
    done
    wait
    [ "$status" -eq 0 ] || [ -s "$failures" ] || record "$stage" "$status" 0 0 /dev/null
    printf '\n'
    cat "$summary" "$failures"
    [ ! -s "$failures" ] || status=1
    awk '{ split(substr($0, 35), count); passed += count[1]; failed += count[3] } END { printf "%d passed, %d failed\n", passed, failed }' "$summary"
    rm -rf "$scratch"
    exit "$status"
}
trap finish EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP PIPE

# processors VARIABLE: the seconds of processors that commands of this shell have had which ended.
processors() {
    local file=$scratch/times.$BASHPID
    times >"$file"
    printf -v "$1" '%d' "$(awk 'NR == 2 { split($0, part, /[ms ]+/); printf "%d", (part[1] + part[3]) * 60 + part[2] + part[4] }' "$file")"
}

# record NAME STATUS SECONDS PROCESSOR_SECONDS LOG: what a stage counted is the sum of the "N passed… N failed"
# in its output, or one check when there are none.
record() {
    local counts passed failed
    counts=$(sed -n -E 's/^(test result: [a-zA-Z]+\. )?([0-9]+) passed[,;] ([0-9]+) failed.*/\2 \3/p' "$5" |
        awk '{ passed += $1; failed += $2 } END { if (NR) print passed, failed }')
    read -r passed failed <<<"${counts:-$(($2 == 0)) 0}"
    [ "$2" -eq 0 ] || [ "$failed" -gt 0 ] || failed=1
    printf '%-34s %6d passed %4d failed %5d s %5d s of processors\n' "$1" "$passed" "$failed" "$3" "$4" >>"$summary"
    # What fails otherwise ends with its error.
    [ "$failed" -eq 0 ] || { printf 'FAILED in stage: %s\n' "$1" && { grep -a -m 20 '^FAIL' "$5" || tail -n 3 "$5"; }; } >>"$failures"
}

# run NAME COMMAND...: one stage. Its output is shown as it comes.
run() {
    local start=$SECONDS ok=0 used
    stage=$1
    shift
    printf '\n'
    say "$stage"
    # In a shell of its own: this one has others beside it.
    { "$@" || ok=$?; processors used; echo "$used" >"$scratch/used"; exit "$ok"; } 2>&1 | tee "$scratch/log" || ok=$?
    record "$stage" "$ok" $((SECONDS - start)) "$(cat "$scratch/used")" "$scratch/log"
    [ -n "$goes_on" ] || [ ! -s "$failures" ] || exit 1
}

# quietly NAME COMMAND...: one stage in a subshell beside others. Its output is shown when it has ended.
quietly() {
    local name=$1 log start=$SECONDS ok=0 before after
    processors before
    log=$(mktemp "$scratch/XXXXXX")
    shift
    "$@" >"$log" 2>&1 &
    trap 'kill $!; exit 143' TERM
    wait $! || ok=$?
    processors after
    (
        flock 9
        printf '\n'
        say "$name"
        cat "$log"
        record "$name" "$ok" $((SECONDS - start)) $((after - before)) "$log"
    ) 9>"$scratch/lock"
}

# beside NAME COMMAND...: one stage beside others.
beside() {
    while [ "$(jobs -pr | wc -l)" -ge "$lanes" ]; do
        wait -n || true
    done
    stage=$1
    (trap - EXIT && quietly "$@") &
}

# together: waits for what runs beside.
together() {
    wait
    [ -n "$goes_on" ] || [ ! -s "$failures" ] || exit 1
}

install_system() {
    ensure_system
    need rsync=rsync mountpoint=util-linux od=coreutils ncdump=netcdf-bin gdalmdiminfo=gdal-bin h5dump=hdf5-tools openssl=openssl curl=curl wget=wget aria2c=aria2 nginx=nginx-light \
        mkfs.exfat=exfatprogs mount.exfat-fuse=exfat-fuse
    if ! cargo fmt --version >/dev/null 2>&1 || ! cargo clippy --version >/dev/null 2>&1; then
        command -v rustup >/dev/null || die "cargo fmt or cargo clippy is missing"
        rustup component add rustfmt clippy
    fi
    # Clients of `tiledbfs serve` and a proxy: what they are tried with is left out where they cannot be had.
    local optional
    for optional in cadaver=cadaver mount.davfs=davfs2 caddy=caddy; do
        (need "$optional") || say "${optional#*=} cannot be installed"
    done
    ensure_stores
    ensure_zarrita
}

install_python() {
    ensure_venv
    # TileDB-Py makes data frames with an older pandas than the other tests read with.
    VENV=$TARGET/venv-datasets PYTHON=$TARGET/venv-datasets/bin/python ensure_venv tests/oracle/requirements-datasets.txt
    # All that tiledbsoma imports: not scanpy, which its package asks for.
    PIP_NO_DEPS=1 VENV=$TARGET/venv-soma PYTHON=$TARGET/venv-soma/bin/python ensure_venv tests/oracle/requirements-soma.txt
    # TileDB-CF imports with old releases of TileDB-Py only.
    VENV=$TARGET/venv-cf PYTHON=$TARGET/venv-cf/bin/python ensure_venv tests/oracle/requirements-cf.txt
    # DuckDB with an extension, which PyPI has of this release alone.
    VENV=$TARGET/venv-duckdb PYTHON=$TARGET/venv-duckdb/bin/python ensure_venv tests/oracle/requirements-duckdb.txt duckdb
}

# readme_program FEATURE...: the README's lines of Rust as a program, without those of other features.
readme_program() {
    echo 'fn main() -> Result<(), Box<dyn std::error::Error>> {'
    awk -v features=" $* " '
        /^```/ { rust = ($0 == "```rust"); next }
        !rust { next }
        match($0, /\/\/ feature `[a-z]+`/) && !index(features, " " substr($0, RSTART + 12, RLENGTH - 13) " ") { next }
        { print }' README.md
    if [[ " $* " == *" arrow "* ]]; then echo 'assert_eq!(batches.rows(), 168);'; fi
    echo 'println!("shape {:?}, notes {notes:?}", temperatures.shape()); Ok(()) }'
}

# profiles: the lines of Cargo.toml that say how dependencies are built, for a release last, but not this
# crate.
profiles() {
    awk '/^\[/ { wanted = /^\[profile\.dev/ } wanted' Cargo.toml
    awk '/^\[/ { wanted = /^\[profile\.release/ } wanted' Cargo.toml
    echo 'tiledbfs = { opt-level = 0 }'
}

# consumer COMMAND FEATURE...: `cargo check` or `cargo run --release` of the README's lines as a crate of its
# own, which depends on this one with no other features. A crate outside of this one's workspace gets no
# features through the dev-dependencies. What both depend on is checked and built once: clippy has checked it.
consumer() {
    local command=($1) crate=$TARGET/consumer features shown
    shift
    features=("${@/#/\"}")
    mkdir -p "$crate/src"
    readme_program "$@" >"$crate/src/main.rs"
    cp Cargo.lock "$crate"
    cat >"$crate/Cargo.toml" <<END
[package]
name = "consumer"
edition = "2024"
[dependencies]
tiledbfs = { path = "$ROOT", default-features = false, features = [$(IFS=,; echo "${features[*]/%/\"}")] }
[workspace]
$(profiles)
END
    shown=$(cargo "${command[@]}" --quiet --target-dir "$TARGET" --manifest-path "$crate/Cargo.toml")
    printf '%s\n' "$shown"
    [[ ${command[0]} == check || $shown == 'shape [28, 6], notes ['* ]]
}

# consumers: with no other features, with object stores, with all.
consumers() {
    consumer "run --release"
    consumer check remote
    consumer "run --release" arrow mount ndarray remote serve
}

# lints: of all targets; of the tests that mount, which are none of them because `cargo test` alone leaves
# them out; and of less than the tests ask for: no code without use, the library alone, and what is there
# without object stores.
lints() {
    cargo clippy --quiet --all-targets -- -D warnings
    cargo clippy --quiet "${mounting[@]}" -- -D warnings
    cargo clippy --quiet -- -D warnings
    cargo clippy --quiet --lib --no-default-features -- -D warnings
    cargo clippy --quiet --bins --no-default-features --features mount -- -D warnings
}

# cargo_lane: what Cargo builds and runs, one after the other, because each locks the directory of what is
# built.
cargo_lane() {
    # Most of the time goes to the compiler, so that this crate is not optimised.
    local tests=(cargo test --quiet --release --config profile.release.package.tiledbfs.opt-level=0)
    quietly "cargo test" "${tests[@]}"
    quietly "cargo test: program" "${tests[@]}" --test program
    quietly "cargo test: mounts" "${tests[@]}" --test mounts
    # It runs alone, later, with the program that is optimised: Cargo would put the other one in its place
    # before. The stage fails if it is not there.
    "${tests[@]}" --no-run --test load --message-format=json |
        jq -r 'select(.target.name == "load") | .executable // empty' >"$scratch/load" || true
    if [ -n "$TILEDBFS_VIEWS" ]; then
        quietly "Arrow" "$PYTHON" tests/oracle/arrow_batches.py --family "$views" --program "$TARGET/release/examples/arrow_ipc"
    fi
    quietly "library of another crate" consumers
    quietly "package" scripts/deb.sh --test
}

# Functions that set variables or PATH run outside of `run`, whose commands are in a pipeline.
stage="install"
install_system
beside "Python packages" install_python
run "cargo fmt" cargo fmt --check
mounting=(--test load --test mounts --test program)
# They are built in another directory than the tests are, so neither waits for the other.
beside "cargo clippy" lints
if [ -n "${TILEDBFS_ARRAYS:-}" ]; then
    stage="unpack $TILEDBFS_ARRAYS"
    arrays=$TARGET/arrays
    unpack "$TILEDBFS_ARRAYS/public.tar.zst" "$arrays"
fi
if [ -n "${TILEDBFS_VIEWS:-}" ]; then
    stage="unpack $TILEDBFS_VIEWS"
    views=$TARGET/views
    unpack "$TILEDBFS_VIEWS/public.tar.zst" "$views"
fi
if [ -n "${TILEDBFS_REAL:-}" ]; then
    stage="unpack $TILEDBFS_REAL"
    real=$TARGET/real
    unpack "$TILEDBFS_REAL/real.tar.zst" "$real"
    cp "$TILEDBFS_REAL/digest.py" "$real"
fi
# Some of the other arrays are damaged too.
export TILEDBFS_ARRAYS="${arrays:+$arrays/arrays}" TILEDBFS_VIEWS="${views:+$views/arrays}"
# First, because what it builds is not the whole program.
run "quickstart" scripts/quickstart.sh
run "cargo build" cargo build --release
together
# Cargo puts the program that tests are built with, which is not optimised, in its place.
mkdir -p "$TARGET/program"
cp "$TILEDBFS_BIN" "$TARGET/program/"
TILEDBFS_BIN=$TARGET/program/tiledbfs
goes_on=1
(trap - EXIT && cargo_lane) &
rm -rf "$TARGET/matrix"
run "oracle: core" "$PYTHON" tests/oracle/run.py --set core --keep "$TARGET/matrix" --counts "$TARGET/core.json"
# The longest first.
if [ -n "${TILEDBFS_ARRAYS:-}" ]; then
    beside "arrays of other releases" "$PYTHON" tests/oracle/run.py --family "$arrays" --counts "$TARGET/family.json" --hashes "$TARGET/family.sha256"
fi
beside "object stores: faults" "$PYTHON" tests/oracle/remote_faults.py
beside "SOMA as AnnData" "$TARGET/venv-soma/bin/python" tests/oracle/soma.py
beside "array.nc: corners" "$PYTHON" tests/oracle/netcdf_corners.py
beside "object stores: access" "$PYTHON" tests/oracle/remote_access.py
beside "object stores: core" "$PYTHON" tests/oracle/remote_tree.py --share 1/10 --matrix "$TARGET/matrix"
beside "object stores: requests" "$PYTHON" tests/oracle/remote_requests.py
beside "object stores: several mounts" "$PYTHON" tests/oracle/cluster.py
beside "oracle: filters" "$PYTHON" tests/oracle/run.py --set filters --counts "$TARGET/filters.json"
beside "oracle: sample" "$PYTHON" tests/oracle/run.py --source tests/data/sample
beside "oracle: random arrays" "$PYTHON" tests/oracle/random_arrays.py --seed 2030 --count 20
beside "plain tools" "$PYTHON" tests/oracle/plain_tools.py
beside "corners of table.csv" "$PYTHON" tests/oracle/csv_corners.py
beside "corners of tables" "$PYTHON" tests/oracle/table_corners.py
beside "who stays while arrays evolve" "$PYTHON" tests/oracle/staying.py
beside "over HTTP" "$PYTHON" tests/oracle/serve.py
beside "over HTTP: pages, WebDAV" "$PYTHON" tests/oracle/serve_page.py
beside "over HTTP: Finder, Explorer" "$PYTHON" tests/oracle/serve_webdav.py
beside "over HTTP: TLS, HTTP/2" "$PYTHON" tests/oracle/serve_http2.py
beside "over HTTP: clients" env TILEDBFS_DUCKDB="$TARGET/venv-duckdb/bin/python" "$PYTHON" tests/oracle/serve_clients.py
beside "over HTTP: behind proxies" "$PYTHON" tests/oracle/serve_proxies.py
beside "over HTTP: in a container" "$PYTHON" tests/oracle/serve_container.py
beside "damage" "$PYTHON" tests/oracle/damage.py
beside "exchanged names" "$PYTHON" tests/oracle/name_swaps.py --seconds 20
beside "leftovers" "$PYTHON" tests/oracle/leftovers.py
beside "deep conditions" "$PYTHON" tests/oracle/deep_conditions.py
beside "what is listed" "$PYTHON" tests/oracle/listed.py
beside "live views" "$PYTHON" tests/oracle/live_views.py --seconds 10
beside "times and parts" "$PYTHON" tests/oracle/times_and_parts.py
beside "mounts that others make" "$PYTHON" tests/oracle/descriptors.py
beside "dimension labels" "$PYTHON" tests/oracle/labels.py
beside "data sets" env TILEDBFS_WRITERS="$TARGET/venv-cf/bin/python" "$PYTHON" tests/oracle/datasets.py
beside "data sets: rasters" "$TARGET/venv-datasets/bin/python" tests/oracle/dataset_rasters.py
beside "data sets: images" "$TARGET/venv-datasets/bin/python" tests/oracle/dataset_images.py
beside "data sets: tables" "$TARGET/venv-datasets/bin/python" tests/oracle/dataset_tables.py
beside "memory of views" "$PYTHON" tests/oracle/view_memory.py
beside "oracle: random views" "$PYTHON" tests/oracle/random_views.py --seed 2031 --count 70
beside "oracle: long cells" "$PYTHON" tests/oracle/long_cells.py --seed 2032 --count 12
beside "oracle: many cells" "$PYTHON" tests/oracle/many_cells.py --seed 2033 --count 4
beside "array.zarr and raster: own arrays" "$PYTHON" tests/oracle/exports_grids.py
beside "arrays of many attributes" "$PYTHON" tests/oracle/many_fields.py
beside "encryption" "$PYTHON" tests/oracle/encryption.py
if [ -n "${TILEDBFS_ARRAYS:-}" ]; then
    beside "what is listed: other releases" "$PYTHON" tests/oracle/listed.py --share 1/5 "$arrays/arrays"
    beside "views of other releases" "$PYTHON" tests/oracle/views.py --reads "$arrays"
    beside "old schemas, written now" "$PYTHON" tests/oracle/old_schemas.py "$arrays"
else
    echo "arrays of other releases           not run: TILEDBFS_ARRAYS is not set" >>"$summary"
fi
if [ -n "${TILEDBFS_VIEWS:-}" ]; then
    beside "oracle: views" "$PYTHON" tests/oracle/views.py --family "$views" --share 1/3
    beside "object stores: views" "$PYTHON" tests/oracle/remote_tree.py --share 1/10 --views "$views"
    beside "what is listed: views" "$PYTHON" tests/oracle/listed.py --share 1/5 "$views/arrays"
    beside "table.csv" "$PYTHON" tests/oracle/exports_csv.py --family "$views"
    beside "array.nc" "$PYTHON" tests/oracle/exports_netcdf.py --family "$views"
    beside "array.zarr" "$PYTHON" tests/oracle/exports_zarr.py --family "$views"
    beside "raster" "$PYTHON" tests/oracle/exports_tiff.py --family "$views"
    beside "table.parquet" "$PYTHON" tests/oracle/exports_parquet.py --family "$views"
else
    echo "oracle: views                      not run: TILEDBFS_VIEWS is not set" >>"$summary"
fi
if [ -n "${TILEDBFS_REAL:-}" ]; then
    beside "what is listed: other programs" "$PYTHON" tests/oracle/listed.py --share 1/5 "$real/arrays"
    beside "arrays of other programs" "$PYTHON" tests/oracle/real.py "$real"
else
    echo "arrays of other programs           not run: TILEDBFS_REAL is not set" >>"$summary"
fi
together
# What counts pages of the kernel's cache, and what measures how long many readers wait, runs alone.
run "what tables decode" "$PYTHON" tests/oracle/table_reads.py
run "object stores: what mounts fetch" "$PYTHON" tests/oracle/cluster_reads.py
run "over HTTP: faults, load" "$PYTHON" tests/oracle/serve_load.py
if [ -n "${TILEDBFS_ARRAYS:-}" ]; then
    run "load" env TILEDBFS_LOAD_SOURCE="$arrays/arrays" TILEDBFS_LOAD_HASHES="$TARGET/family.sha256" \
        TILEDBFS_LOAD_SECONDS="${TILEDBFS_LOAD_SECONDS:-10}" "$(cat "$scratch/load")" --nocapture many_readers
    "$PYTHON" tests/oracle/table.py --output "$TARGET/VERIFIED.md" "$TARGET"/{core,filters,family}.json
    cmp -s "$TARGET/VERIFIED.md" tests/VERIFIED.md || echo "tests/VERIFIED.md is not what these runs verified: copy $TARGET/VERIFIED.md" >>"$summary"
fi
