#!/usr/bin/env bash
# Looks at the pages of `tiledbfs serve` in Chromium: scripts/test-page.sh [FOLDER]. axe-core finds nothing to
# mend at three widths, in light and in dark, nothing is wider than the window, and the script asks for the
# lengths that a page does not have. Screenshots go to FOLDER, if given. Then zarrita reads array.zarr in a
# page of another origin.
# Installs Chromium from Debian, axe-core, esbuild, puppeteer-core and zarrita from npm.
set -euo pipefail
. "$(dirname "$0")/lib.sh"

need chromium=chromium node=nodejs npm=npm
folder=$TARGET/page
for module in axe-core esbuild puppeteer-core zarrita; do
    [ -d "$folder/node_modules/$module" ] ||
        npm install --silent --no-fund --no-audit --prefix "$folder" axe-core@4 esbuild@0.25 puppeteer-core@25 zarrita@0.7 >/dev/null
done
[ -x "$TILEDBFS_BIN" ] || build_release

log=$(mktemp)
"$TILEDBFS_BIN" serve tests/data/sample --listen 127.0.0.1:0 >"$log" &
server=$!
trap 'kill "$server" 2>/dev/null || true; rm -f "$log"' EXIT
for _ in $(seq 100); do
    [ -s "$log" ] && break
    kill -0 "$server" || die "the server has ended"
    sleep 0.1
done
export NODE_PATH=$folder/node_modules
node tests/oracle/serve_page.cjs "$(head -1 "$log")" "$(command -v chromium)" "${1:-}"
node tests/oracle/serve_zarrita.cjs "$TILEDBFS_BIN" "$(command -v chromium)" "$folder"
