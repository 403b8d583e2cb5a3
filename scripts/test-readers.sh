#!/usr/bin/env bash
# Opens the exports of every view with readers from PyPI, and those of `data/` with readers from Debian, after
# scripts/test.sh has run; takes an hour and more. The table of the latter, which it prints, is in
# docs/exports.md.
# TILEDBFS_VIEWS and TILEDBFS_ARRAYS are as there.
set -euo pipefail
. "$(dirname "$0")/lib.sh"

: "${TILEDBFS_VIEWS:?names the folder with the arrays that views are compared on}"
: "${TILEDBFS_ARRAYS:?names the folder with arrays of other releases}"
ensure_system
need Rscript=r-base-core octave-cli=octave mlr=miller sqlite3=sqlite3 gawk=gawk ncks=nco cdo=cdo ncdump=netcdf-bin gdalmdiminfo=gdal-bin convert=imagemagick
install_packages octave-netcdf r-cran-data.table r-cran-ncdf4 r-cran-readr
/usr/bin/python3 -c 'import qgis.core' 2>/dev/null || install_packages python3-qgis
(install_packages r-bioc-rhdf5) || say "r-bioc-rhdf5 cannot be installed"
ensure_venv
VENV=$TARGET/venv-datasets PYTHON=$TARGET/venv-datasets/bin/python ensure_venv tests/oracle/requirements-datasets.txt
VENV=$TARGET/venv-scanpy PYTHON=$TARGET/venv-scanpy/bin/python ensure_venv tests/oracle/requirements-scanpy.txt scanpy
cargo build --release
views=$TARGET/views
arrays=$TARGET/arrays
unpack "$TILEDBFS_VIEWS/public.tar.zst" "$views"
unpack "$TILEDBFS_ARRAYS/public.tar.zst" "$arrays"

# DataFusion, from Rust, over record batches; Cargo.lock has the release of Arrow that both know.
shown=$(cargo run --quiet --release --target-dir "$TARGET/datafusion" --manifest-path examples/datafusion/Cargo.toml -- tests/data/sample/weather "SELECT count(*) AS cells FROM cells")
[[ $shown == *"| 2190  |"* ]] || die "DataFusion: $shown"

"$PYTHON" tests/oracle/exports_parquet_large.py
"$PYTHON" tests/oracle/exports_csv.py --source "$arrays/arrays"
for format in csv netcdf zarr tiff parquet; do
    "$PYTHON" "tests/oracle/exports_$format.py" --family "$views" --all
done
"$PYTHON" tests/oracle/other_readers.py --family "$views"
"$TARGET/venv-datasets/bin/python" tests/oracle/qgis_rasters.py
"$TARGET/venv-scanpy/bin/python" tests/oracle/soma_readers.py
