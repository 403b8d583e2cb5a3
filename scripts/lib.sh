# Shared by the scripts beside it (to be sourced): installs what they need, builds, mounts and unmounts.
# Expects `set -eu`; leaves the working directory at the project's root.

cd "$(dirname "${BASH_SOURCE[0]}")/.."
ROOT=$PWD
VENV=$ROOT/.venv
PYTHON=$VENV/bin/python
TARGET=${CARGO_TARGET_DIR:-$ROOT/target}
TILEDBFS_BIN=$TARGET/release/tiledbfs
export TILEDBFS_BIN PYTHONDONTWRITEBYTECODE=1

say() { printf '== %s\n' "$*"; }

die() {
    printf 'error: %s\n' "$*" >&2
    exit 1
}

# install_packages PACKAGE...: with apt-get, as root or through sudo.
install_packages() {
    local apt=()
    command -v apt-get >/dev/null || die "missing packages ($*), and there is no apt-get to install them with"
    if [ "$(id -u)" -ne 0 ]; then
        command -v sudo >/dev/null || die "missing packages; as root: apt-get install $*"
        apt=(sudo)
    fi
    apt+=(env DEBIAN_FRONTEND=noninteractive apt-get -qq -y -o Dpkg::Use-Pty=0)
    say "installing $*"
    # The lists of packages may be missing or out of date: update them, and try again, when installing fails.
    "${apt[@]}" install --no-install-recommends "$@" </dev/null >/dev/null 2>&1 && return
    "${apt[@]}" update </dev/null || die "apt-get update failed"
    "${apt[@]}" install --no-install-recommends "$@" </dev/null >/dev/null || die "could not install $*"
}

# need COMMAND=PACKAGE...: installs the packages of the commands that are missing.
need() {
    local pair missing=()
    for pair in "$@"; do
        command -v "${pair%%=*}" >/dev/null || missing+=("${pair#*=}")
    done
    [ ${#missing[@]} -eq 0 ] || install_packages "${missing[@]}"
}

# What every script needs: the kernel's FUSE, Rust, Python, a linker, and the tools that look at files.
ensure_system() {
    PATH=$PATH:${CARGO_HOME:-$HOME/.cargo}/bin
    command -v cargo >/dev/null || die "cargo not found: install Rust (https://rustup.rs)"
    need fusermount3=fuse3 cc=build-essential python3=python3 jq=jq hexdump=bsdextrautils zstd=zstd
    python3 -c 'import ensurepip, venv' 2>/dev/null || install_packages python3-venv
    [ -e /dev/fuse ] || die "/dev/fuse is missing: load the kernel module (modprobe fuse) or pass the device to the container"
}

# ensure_venv [REQUIREMENTS [MODULE]]: the virtual environment in $VENV, made anew when its requirements have
# changed, or without this module.
ensure_venv() {
    local wanted=$ROOT/${1:-tests/oracle/requirements.txt}
    if [ -x "$PYTHON" ] && cmp -s "$wanted" "$VENV/requirements.txt" && "$PYTHON" -c "import ${2:-tiledb}" 2>/dev/null; then
        return
    fi
    say "making $(basename "$VENV") with $(tr '\n' ' ' <"$wanted")"
    rm -rf "$VENV"
    python3 -m venv "$VENV"
    "$PYTHON" -m pip install --quiet --disable-pip-version-check -r "$wanted"
    cp "$wanted" "$VENV/requirements.txt"
}

# What the tests of object stores need beside the virtual environment: rclone, and azurite where there is npm
# (TILEDBFS_AZURITE).
ensure_stores() {
    need rclone=rclone
    if ! command -v npm >/dev/null; then
        say "no npm here: az:// is not tried"
        return
    fi
    local folder=$TARGET/azurite
    export TILEDBFS_AZURITE=$folder/node_modules/.bin/azurite-blob
    [ -x "$TILEDBFS_AZURITE" ] || npm install --silent --no-fund --no-audit --prefix "$folder" azurite@3 >/dev/null
}

# What reads Zarr in browsers, where there is npm (TILEDBFS_ZARRITA: its directory node_modules).
ensure_zarrita() {
    if ! command -v npm >/dev/null; then
        say "no npm here: zarrita is not tried"
        return
    fi
    local folder=$TARGET/zarrita
    export TILEDBFS_ZARRITA=$folder/node_modules
    [ -d "$TILEDBFS_ZARRITA/zarrita" ] || npm install --silent --no-fund --no-audit --prefix "$folder" zarrita@0.7 >/dev/null
}

# unpack ARCHIVE DIRECTORY: an archive to a directory below $TARGET, once.
unpack() {
    local sum
    [ -f "$1" ] || die "there is no $1"
    sum=$(sha256sum <"$1")
    [ "$(cat "$2/.unpacked" 2>/dev/null)" != "$sum" ] || return 0
    rm -rf "$2"
    mkdir -p "$2"
    zstd -dcq --long=27 "$1" | tar -xf - -C "$2"
    printf '%s\n' "$sum" >"$2/.unpacked"
}

build_release() {
    cargo build --release --quiet
}

# unmount_quietly DIRECTORY: for traps, when the program itself may be gone.
unmount_quietly() {
    ! mountpoint -q "$1" || "$TILEDBFS_BIN" unmount "$1" 2>/dev/null || fusermount3 -u -z "$1" || true
}
