#!/usr/bin/env bash
# Builds tiledbfs, mounts the sample group of tests/data/sample and looks at it with everyday tools.
set -euo pipefail
. "$(dirname "$0")/lib.sh"

ensure_system
ensure_venv
say "building tiledbfs"
build_release

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

PATH=$(dirname "$TILEDBFS_BIN"):$VENV/bin:$PATH

# show COMMAND: prints it behind a prompt, then runs it in the current directory.
show() {
    printf '\n$ %s\n' "$1"
    bash -o pipefail -c "$1"
}

# In the first fragment of the dense array, its long name made short by a pattern.
column='weather/fragments/__1738627200000_*/columns/temperature'

show "tiledbfs mount tests/data/sample $mount"
printf '\n$ cd %s\n' "$mount"
cd "$mount"
show 'ls -A . weather'
show 'ls weather/fragments/__1738627200000_*'
show 'ls -R weather/fragments/__1738627200000_*/columns/note'
show 'cat group.json'
show "jq -r '.attributes[] | [.name, .datatype, .nullable, .filters.filters[].type] | @tsv' weather/schema.json"
show "jq -c '.[] | {name, timestamp_range, cell_num, non_empty_domain}' weather/fragments.json"
show 'jq . weather/metadata.json'
show "jq -c .values weather/enumerations/sky.json"
show "hexdump -C -n 64 $column/data.bin"
show "od -A d -t f4 -N 32 $column/data.bin"
show "python -c 'import numpy, sys; t = numpy.load(sys.argv[1], mmap_mode=\"r\"); print(t.dtype, t.shape, t[:6], t.mean())' $column/data.npy"
show "jq -c '{tiles_opened, chunks_decoded, bytes_read}' .tiledbfs/stats.json"
cd "$ROOT"
printf '\n$ cd -\n'
show "tiledbfs unmount $mount"
