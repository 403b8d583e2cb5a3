#!/usr/bin/env bash
# Installs what the tests need and runs all of them. Stops at the first stage that fails until the program is built; the last
# line counts the checks.
# TILEDBFS_ARRAYS may name a folder with public.tar.zst, arrays written by many releases of TileDB, which are then read too;
# TILEDBFS_VIEWS one with public.tar.zst, arrays with what libtiledb reads from them at many times and in many parts;
# TILEDBFS_REAL one with real.tar.zst, arrays written by other programs, with what libtiledb reads of them;
# TILEDBFS_LOAD_SECONDS is how long 64 threads then read them at once.
set -euo pipefail
. "$(dirname "$0")/lib.sh"

passed=0
failed=0
stage=start
scratch=$(mktemp -d)
log=$scratch/log
summary=()
failures=()
goes_on=

finish() {
    local status=$? background
    # What has ended meanwhile is no error.
    for background in $(jobs -pr); do
        kill "$background" 2>/dev/null || true
    done
    rm -rf "$scratch"
    printf '\n'
    [ ${#summary[@]} -eq 0 ] || printf '%s\n' "${summary[@]}"
    [ ${#failures[@]} -eq 0 ] || printf '%s\n' "${failures[@]}"
    if [ "$status" -ne 0 ] && [ ${#failures[@]} -eq 0 ]; then
        failed=$((failed + 1))
        printf 'FAILED in stage: %s\n' "$stage"
    fi
    [ "$failed" -eq 0 ] || status=1
    printf '%d passed, %d failed\n' "$passed" "$failed"
    exit "$status"
}
trap finish EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP PIPE

# run NAME COMMAND...: one stage. What it counted is the sum of the "N passed… N failed" in its output, or one check when there are none.
run() {
    local start=$SECONDS ok=0 counts
    stage=$1
    shift
    printf '\n'
    say "$stage"
    "$@" 2>&1 | tee "$log" || ok=1
    counts=$(sed -n -E 's/^(test result: [a-zA-Z]+\. )?([0-9]+) passed[,;] ([0-9]+) failed.*/\2 \3/p' "$log")
    [ -n "$counts" ] || counts="$((1 - ok)) $ok"
    local p f sum_p=0 sum_f=0
    while read -r p f; do
        sum_p=$((sum_p + p))
        sum_f=$((sum_f + f))
    done <<<"$counts"
    passed=$((passed + sum_p))
    failed=$((failed + sum_f))
    summary+=("$(printf '%-34s %6d passed %4d failed %5d s' "$stage" "$sum_p" "$sum_f" $((SECONDS - start)))")
    [ "$ok" -eq 0 ] && [ "$sum_f" -eq 0 ] && return
    failures+=("FAILED in stage: $stage" "$(grep -a -m 20 '^FAIL' "$log" || true)")
    [ "$sum_f" -gt 0 ] || failed=$((failed + 1))
    [ -n "$goes_on" ] || exit 1
}

# beside NAME COMMAND...: starts what waits more than it computes.
beside() {
    local name=$1
    shift
    : >"$scratch/$name"
    (
        "$@" >"$scratch/$name" 2>&1 &
        trap 'kill %1' TERM
        wait %1 && : >"$scratch/$name.ok"
    ) &
    echo $! >"$scratch/$name.pid"
}

# started NAME: shows what `beside` started, as it comes, and ends as it does.
started() {
    tail --pid="$(<"$scratch/$1.pid")" -s 0.2 -n +1 -f "$scratch/$1"
    [ -e "$scratch/$1.ok" ]
}

install_all() {
    ensure_system
    need rsync=rsync mountpoint=util-linux od=coreutils ncdump=netcdf-bin gdalmdiminfo=gdal-bin h5dump=hdf5-tools openssl=openssl curl=curl wget=wget aria2c=aria2 nginx=nginx-light
    if ! cargo fmt --version >/dev/null 2>&1 || ! cargo clippy --version >/dev/null 2>&1; then
        command -v rustup >/dev/null || die "cargo fmt or cargo clippy is missing"
        rustup component add rustfmt clippy
    fi
    # Clients of `tiledbfs serve` and a proxy: what they are tried with is left out where they cannot be had.
    local optional
    for optional in cadaver=cadaver mount.davfs=davfs2 caddy=caddy; do
        (need "$optional") || say "${optional#*=} cannot be installed"
    done
    ensure_venv
    # TileDB-Py makes data frames with an older pandas than the other tests read with.
    VENV=$TARGET/venv-datasets PYTHON=$TARGET/venv-datasets/bin/python ensure_venv tests/oracle/requirements-datasets.txt
    # All that tiledbsoma imports: not scanpy, which its package asks for.
    PIP_NO_DEPS=1 VENV=$TARGET/venv-soma PYTHON=$TARGET/venv-soma/bin/python ensure_venv tests/oracle/requirements-soma.txt
    # TileDB-CF imports with old releases of TileDB-Py only.
    VENV=$TARGET/venv-cf PYTHON=$TARGET/venv-cf/bin/python ensure_venv tests/oracle/requirements-cf.txt
    # DuckDB with an extension, which PyPI has of this release alone.
    VENV=$TARGET/venv-duckdb PYTHON=$TARGET/venv-duckdb/bin/python ensure_venv tests/oracle/requirements-duckdb.txt duckdb
    ensure_stores
    ensure_zarrita
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

# consumer FEATURE...: builds the README's lines as a crate of its own, which depends on this one with no other features, and runs them.
# A crate outside of this one's workspace gets no features through the dev-dependencies.
consumer() {
    local crate=$TARGET/consumer features=("${@/#/\"}") shown
    mkdir -p "$crate/src"
    readme_program "$@" >"$crate/src/main.rs"
    cp Cargo.lock "$crate"
    cat >"$crate/Cargo.toml" <<END
[package]
name = "consumer"
edition = "2024"
[dependencies]
tiledbfs = { path = "$ROOT", default-features = false, features = [$(IFS=,; echo "${features[*]/%/\"}")] }
[profile.dev]
debug = false
[workspace]
END
    shown=$(cargo run --quiet --target-dir "$crate/target" --manifest-path "$crate/Cargo.toml")
    printf '%s\n' "$shown"
    [[ $shown == 'shape [28, 6], notes ['* ]]
}

# Functions that set variables or PATH run outside of `run`, whose commands are in a pipeline.
stage="install"
install_all
run "cargo fmt" cargo fmt --check
run "cargo clippy" cargo clippy --quiet --all-targets -- -D warnings
# They are no part of "all targets", because `cargo test` alone leaves them out.
mounting=(--test load --test mounts --test program)
run "cargo clippy: tests that mount" cargo clippy --quiet "${mounting[@]}" -- -D warnings
run "no code without use" cargo clippy --quiet -- -D warnings
run "library alone" cargo clippy --quiet --lib --no-default-features -- -D warnings
run "without object stores" cargo clippy --quiet --bins --no-default-features --features mount -- -D warnings
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
run "cargo test" env TILEDBFS_ARRAYS="${arrays:+$arrays/arrays}" TILEDBFS_VIEWS="${views:+$views/arrays}" cargo test --quiet --release
run "cargo test: mounts" env TILEDBFS_ARRAYS="${arrays:+$arrays/arrays}" TILEDBFS_VIEWS="${views:+$views/arrays}" cargo test --quiet --release "${mounting[@]}"
run "cargo build" cargo build --release
beside faults "$PYTHON" tests/oracle/remote_faults.py
beside access "$PYTHON" tests/oracle/remote_access.py
run "library of another crate" consumer
run "... with object stores" consumer remote
run "... with all features" consumer arrow mount ndarray remote serve
run "quickstart" scripts/quickstart.sh
run "package" scripts/deb.sh --test
goes_on=1
rm -rf "$TARGET/matrix"
run "oracle: core" "$PYTHON" tests/oracle/run.py --set core --keep "$TARGET/matrix" --counts "$TARGET/core.json"
run "object stores: core" "$PYTHON" tests/oracle/remote_tree.py --share 1/10 --matrix "$TARGET/matrix"
run "object stores: requests" "$PYTHON" tests/oracle/remote_requests.py
run "object stores: faults" started faults
run "object stores: access" started access
run "object stores: several mounts" "$PYTHON" tests/oracle/cluster.py
run "object stores: what mounts fetch" "$PYTHON" tests/oracle/cluster_reads.py
run "oracle: filters" "$PYTHON" tests/oracle/run.py --set filters --counts "$TARGET/filters.json"
run "oracle: sample" "$PYTHON" tests/oracle/run.py --source tests/data/sample
run "oracle: random arrays" "$PYTHON" tests/oracle/random_arrays.py --seed 2030 --count 20
run "plain tools" "$PYTHON" tests/oracle/plain_tools.py
run "corners of table.csv" "$PYTHON" tests/oracle/csv_corners.py
run "corners of tables" "$PYTHON" tests/oracle/table_corners.py
run "what tables decode" "$PYTHON" tests/oracle/table_reads.py
run "who stays while arrays evolve" "$PYTHON" tests/oracle/staying.py
run "over HTTP" "$PYTHON" tests/oracle/serve.py
run "over HTTP: pages, WebDAV" "$PYTHON" tests/oracle/serve_page.py
run "over HTTP: Finder, Explorer" "$PYTHON" tests/oracle/serve_webdav.py
run "over HTTP: TLS, HTTP/2" "$PYTHON" tests/oracle/serve_http2.py
run "over HTTP: faults, load" "$PYTHON" tests/oracle/serve_load.py
run "over HTTP: clients" env TILEDBFS_DUCKDB="$TARGET/venv-duckdb/bin/python" "$PYTHON" tests/oracle/serve_clients.py
run "over HTTP: behind proxies" "$PYTHON" tests/oracle/serve_proxies.py
run "over HTTP: in a container" "$PYTHON" tests/oracle/serve_container.py
run "damage" "$PYTHON" tests/oracle/damage.py
run "exchanged names" "$PYTHON" tests/oracle/name_swaps.py --seconds 20
run "leftovers" "$PYTHON" tests/oracle/leftovers.py
run "deep conditions" "$PYTHON" tests/oracle/deep_conditions.py
run "what is listed" "$PYTHON" tests/oracle/listed.py
run "live views" "$PYTHON" tests/oracle/live_views.py --seconds 10
run "times and parts" "$PYTHON" tests/oracle/times_and_parts.py
run "mounts that others make" "$PYTHON" tests/oracle/descriptors.py
run "dimension labels" "$PYTHON" tests/oracle/labels.py
run "data sets" env TILEDBFS_WRITERS="$TARGET/venv-cf/bin/python" "$PYTHON" tests/oracle/datasets.py
run "data sets: rasters" "$TARGET/venv-datasets/bin/python" tests/oracle/dataset_rasters.py
run "data sets: images" "$TARGET/venv-datasets/bin/python" tests/oracle/dataset_images.py
run "data sets: tables" "$TARGET/venv-datasets/bin/python" tests/oracle/dataset_tables.py
run "SOMA as AnnData" "$TARGET/venv-soma/bin/python" tests/oracle/soma.py
run "memory of views" "$PYTHON" tests/oracle/view_memory.py
run "oracle: random views" "$PYTHON" tests/oracle/random_views.py --seed 2031 --count 70
run "oracle: long cells" "$PYTHON" tests/oracle/long_cells.py --seed 2032 --count 12
run "oracle: many cells" "$PYTHON" tests/oracle/many_cells.py --seed 2033 --count 4
run "array.nc: corners" "$PYTHON" tests/oracle/netcdf_corners.py
run "array.zarr and raster: own arrays" "$PYTHON" tests/oracle/exports_grids.py
run "arrays of many attributes" "$PYTHON" tests/oracle/many_fields.py
run "encryption" "$PYTHON" tests/oracle/encryption.py
if [ -n "${TILEDBFS_ARRAYS:-}" ]; then
    run "arrays of other releases" "$PYTHON" tests/oracle/run.py --family "$arrays" --counts "$TARGET/family.json" --hashes "$TARGET/family.sha256"
    run "load" env TILEDBFS_LOAD_SOURCE="$arrays/arrays" TILEDBFS_LOAD_HASHES="$TARGET/family.sha256" \
        TILEDBFS_LOAD_SECONDS="${TILEDBFS_LOAD_SECONDS:-10}" cargo test --quiet --release --test load -- --nocapture many_readers
    run "what is listed: other releases" "$PYTHON" tests/oracle/listed.py --share 1/5 "$arrays/arrays"
    run "views of other releases" "$PYTHON" tests/oracle/views.py --reads "$arrays"
    "$PYTHON" tests/oracle/table.py --output "$TARGET/VERIFIED.md" "$TARGET"/{core,filters,family}.json
    cmp -s "$TARGET/VERIFIED.md" tests/VERIFIED.md || summary+=("tests/VERIFIED.md is not what these runs verified: copy $TARGET/VERIFIED.md")
else
    summary+=("arrays of other releases           not run: TILEDBFS_ARRAYS is not set")
fi
if [ -n "${TILEDBFS_VIEWS:-}" ]; then
    run "Arrow" "$PYTHON" tests/oracle/arrow_batches.py --family "$views" --program "$TARGET/release/examples/arrow_ipc"
    run "oracle: views" "$PYTHON" tests/oracle/views.py --family "$views" --share 1/3
    run "object stores: views" "$PYTHON" tests/oracle/remote_tree.py --share 1/10 --views "$views"
    run "what is listed: views" "$PYTHON" tests/oracle/listed.py --share 1/5 "$views/arrays"
    run "table.csv" "$PYTHON" tests/oracle/exports_csv.py --family "$views"
    run "array.nc" "$PYTHON" tests/oracle/exports_netcdf.py --family "$views"
    run "array.zarr" "$PYTHON" tests/oracle/exports_zarr.py --family "$views"
    run "raster" "$PYTHON" tests/oracle/exports_tiff.py --family "$views"
    run "table.parquet" "$PYTHON" tests/oracle/exports_parquet.py --family "$views"
else
    summary+=("oracle: views                      not run: TILEDBFS_VIEWS is not set")
fi
if [ -n "${TILEDBFS_REAL:-}" ]; then
    run "what is listed: other programs" "$PYTHON" tests/oracle/listed.py --share 1/5 "$real/arrays"
    run "arrays of other programs" "$PYTHON" tests/oracle/real.py "$real"
else
    summary+=("arrays of other programs           not run: TILEDBFS_REAL is not set")
fi
