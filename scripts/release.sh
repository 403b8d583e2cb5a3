#!/usr/bin/env bash
# Makes what a release has, in target/release-files: scripts/release.sh [--test]. A Debian package, a tarball
# and a wheel of one program, which is linked by zig and needs a glibc of 2.28 or later and nothing else, and
# the checksums of all three. With --test each is installed in an empty root, prefix or virtual environment,
# and mounts the sample.
set -euo pipefail
. "$(dirname "$0")/lib.sh"

GLIBC=2.28
files=$TARGET/release-files
triple=$(uname -m)-unknown-linux-gnu
program=$TARGET/$triple/release/tiledbfs

ensure_system
need strings=binutils
VENV=$TARGET/venv-release
PYTHON=$VENV/bin/python
ensure_venv scripts/requirements-release.txt maturin
rm -rf "$files"
mkdir -p "$files"

say "the wheel"
PATH=$VENV/bin:$PATH maturin build --quiet --release --locked --zig --target "$triple" --compatibility "manylinux_${GLIBC/./_}" --out "$files"
newest=$(strings "$program" | sed -n 's/^GLIBC_\([0-9.]*\)$/\1/p' | sort -V | tail -1)
[ "$(printf '%s\n' "$newest" "$GLIBC" | sort -V | tail -1)" = "$GLIBC" ] || die "the program needs glibc $newest"
say "the program needs glibc $newest"

say "the package"
scripts/deb.sh ${1:+"$1"} "$triple"
mv "$TARGET"/debian/tiledbfs_*.deb "$files/"

say "the tarball"
name=tiledbfs-$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -1)-$triple
stage=$(mktemp -d)
trap 'rm -rf "$stage"' EXIT
TILEDBFS_BIN=$program DESTDIR=$stage scripts/install.sh /usr/local >/dev/null
mv "$stage/usr/local" "$stage/$name"
# What --uninstall reads: it knows nothing of a tarball.
rm -r "$stage/$name/share/tiledbfs"
# Not beside bin/, which would be in /usr/local, where other programs may have a README.md.
mkdir -p "$stage/$name/share/doc/tiledbfs"
cp LICENSE README.md CHANGELOG.md "$stage/$name/share/doc/tiledbfs/"
tar --sort=name --owner=0 --group=0 --numeric-owner -C "$stage" -czf "$files/$name.tar.gz" "$name"

(cd "$files" && sha256sum -- * >SHA256SUMS)
say "made in $files:"
cat "$files/SHA256SUMS"
[ "${1:-}" = --test ] || exit 0

# mounts_sample PROGRAM
mounts_sample() {
    local point=$stage/mnt
    mkdir -p "$point"
    "$1" mount tests/data/sample "$point"
    # shellcheck disable=SC2064
    trap "unmount_quietly '$point'; rm -rf '$stage'" EXIT
    [ "$(wc -c <"$point/weather/data/columns/temperature/data.npy")" -gt 128 ] || die "$1 does not show the sample"
    "$1" unmount "$point"
    say "$1 mounts the sample"
}

mkdir "$stage/prefix" "$stage/root"
tar -C "$stage/prefix" --strip-components=1 -xf "$files"/*.tar.gz
[ "$(ls "$stage/prefix")" = $'bin\nlib\nshare' ] || die "the tarball has more than bin, lib and share: $(ls "$stage/prefix")"
mounts_sample "$stage/prefix/bin/tiledbfs"
dpkg-deb -x "$files"/*.deb "$stage/root"
mounts_sample "$stage/root/usr/bin/tiledbfs"
python3 -m venv "$stage/venv"
"$stage/venv/bin/pip" install --quiet --disable-pip-version-check --no-index "$files"/*.whl
mounts_sample "$stage/venv/bin/tiledbfs"
