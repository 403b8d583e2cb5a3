#!/usr/bin/env bash
# Compares all arrays with SOURCE in an object store, where scripts/test.sh takes a tenth of them, and counts
# the requests of 10,000 fragments; takes the better part of an hour. TILEDBFS_VIEWS and TILEDBFS_ARRAYS are
# as there.
set -euo pipefail
. "$(dirname "$0")/lib.sh"

: "${TILEDBFS_VIEWS:?names the folder with the arrays that views are compared on}"
: "${TILEDBFS_ARRAYS:?names the folder with arrays of other releases}"
ensure_system
ensure_venv
ensure_stores
cargo build --release
views=$TARGET/views
arrays=$TARGET/arrays
unpack "$TILEDBFS_VIEWS/public.tar.zst" "$views"
unpack "$TILEDBFS_ARRAYS/public.tar.zst" "$arrays"

"$PYTHON" tests/oracle/remote_requests.py --fragments 10000
"$PYTHON" tests/oracle/remote_faults.py
"$PYTHON" tests/oracle/remote_access.py
"$PYTHON" tests/oracle/remote_tree.py
"$PYTHON" tests/oracle/remote_tree.py --family "$arrays"
"$PYTHON" tests/oracle/remote_tree.py --views "$views"
