#!/usr/bin/env bash
# Builds tiledbfs for local arrays, mounts the sample group of tests/data/sample and looks at it with everyday
# tools.
set -euo pipefail
. "$(dirname "$0")/lib.sh"

ensure_system
export PYTHONPATH=$TARGET/numpy${PYTHONPATH:+:$PYTHONPATH}
installing=
if ! python3 -c 'import numpy' 2>/dev/null; then
    python3 -m pip --version >/dev/null 2>&1 || install_packages python3-pip
    # Beside the build.
    PIP_ROOT_USER_ACTION=ignore python3 -m pip install --quiet --disable-pip-version-check --no-compile \
        --upgrade --target "$TARGET/numpy" numpy &
    installing=$!
fi
# Object stores and HTTP take as long again to build, and are not needed here. Nor is the last of the speed,
# for which compilers take a third of the time.
say "building tiledbfs for local arrays (cargo build --release adds object stores and HTTP, and is faster to read)"
cargo build --release --quiet --no-default-features --features mount \
    --config profile.release.package.tiledbfs.opt-level=\"s\" \
    --config profile.release.package.tiledbfs.codegen-units=8 \
    --config profile.release.package.libdeflate-sys.opt-level=1 \
    --config profile.release.package.zstd-sys.opt-level=1
[ -z "$installing" ] || wait "$installing"

scratch=$(mktemp -d)
mount=$scratch/mnt
mkdir "$mount"
cleanup() {
    cd "$ROOT"
    unmount_quietly "$mount"
    rmdir "$mount" "$scratch"
}
trap cleanup EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP PIPE

PATH=$(dirname "$TILEDBFS_BIN"):$PATH

# show COMMAND: prints it behind a prompt, then runs it in the current directory.
show() {
    printf '\n$ %s\n' "$1"
    bash -o pipefail -c "$1"
}

# Days in February at three stations, as they are and as they were before a correction.
box='data/subarray/50..60,0..2/columns/temperature/data.bin'
# In the first fragment of the dense array, its long name made short by a pattern.
column='weather/fragments/__1738627200000_*/columns/temperature'

show "tiledbfs mount tests/data/sample $mount"
printf '\n$ cd %s\n' "$mount"
cd "$mount"
show 'ls -A . weather'
show 'ls weather/data/columns'
show "jq -c '{shape, region, order}' weather/data/view.json"
show 'cat weather/data/columns/temperature/data.npy | wc -c'
show "python3 -c 'import numpy; t = numpy.load(\"weather/data/columns/temperature/data.npy\"); print(t.dtype, t.shape, t[49, 0])'"
show "od -A n -w12 -t f4 -N 36 weather/$box"
show 'ls weather/at'
show "od -A n -w12 -t f4 -N 36 weather/at/2025-02-04/$box"
show 'ls weather/fragments/latest'
show 'ls weather/fragments/__1738627200000_*'
show 'ls -R weather/fragments/__1738627200000_*/columns/note'
show 'cat group.json'
show "jq -r '.attributes[] | [.name, .datatype, .nullable, .filters.filters[].type] | @tsv' weather/schema.json"
show "jq -c '.[] | {name, timestamp_range, cell_num, non_empty_domain}' weather/fragments.json"
show 'jq . weather/metadata.json'
show "jq -c .values weather/enumerations/sky.json"
show "hexdump -C -n 64 $column/data.bin"
show "od -A d -t f4 -N 32 $column/data.bin"
show "python3 -c 'import numpy, sys; t = numpy.load(sys.argv[1], mmap_mode=\"r\"); print(t.dtype, t.shape, t[:6], t.mean())' $column/data.npy"
show "jq -c '{tiles_opened, chunks_decoded, bytes_read}' .tiledbfs/stats.json"
cd "$ROOT"
printf '\n$ cd -\n'
show "tiledbfs unmount $mount"
