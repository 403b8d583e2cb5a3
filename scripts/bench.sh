#!/usr/bin/env bash
# Measures tiledbfs against TileDB-Py and against the limit of this machine, and prints one table:
# scripts/bench.sh [ROW...], or --help.
# The arrays are made with libtiledb at the first run, which takes minutes and about 4 GiB, and kept in
# target/bench-arrays.
# With --plot it draws docs/growth.svg instead.
# With --realtime (as root) other programs disturb less.
set -euo pipefail
. "$(dirname "$0")/lib.sh"

ensure_system
need mountpoint=util-linux rclone=rclone
# TileDB-Py makes data frames with an older pandas than the tests read exports with.
VENV=$ROOT/.venv-bench
PYTHON=$VENV/bin/python
ensure_venv benches/requirements.txt
say "building"
cargo build --release --quiet --bins --examples
exec "$PYTHON" benches/compare.py --arrays "$TARGET/bench-arrays" "$@"
