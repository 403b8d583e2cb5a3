#!/usr/bin/env bash
# Opens the exports of every view with real readers, after scripts/test.sh has run; takes an hour and more.
# TILEDBFS_VIEWS and TILEDBFS_ARRAYS are as there.
set -euo pipefail
. "$(dirname "$0")/lib.sh"

: "${TILEDBFS_VIEWS:?names the folder with the arrays that views are compared on}"
: "${TILEDBFS_ARRAYS:?names the folder with arrays of other releases}"
ensure_system
ensure_venv
cargo build --release
views=$TARGET/views
arrays=$TARGET/arrays
unpack "$TILEDBFS_VIEWS/public.tar.zst" "$views"
unpack "$TILEDBFS_ARRAYS/public.tar.zst" "$arrays"

"$PYTHON" tests/oracle/exports_parquet_large.py
"$PYTHON" tests/oracle/exports_csv.py --source "$arrays/arrays"
for format in csv netcdf zarr tiff parquet; do
    "$PYTHON" "tests/oracle/exports_$format.py" --family "$views" --all
done
