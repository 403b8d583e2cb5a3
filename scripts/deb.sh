#!/usr/bin/env bash
# Makes a Debian package, and says where it is: scripts/deb.sh [--test] [TARGET]. The program is built first,
# unless there is a target, whose program is taken as it is. With --test the package is installed below an
# empty directory as well, looked at, and removed again; where there is no dpkg, nothing is done, and this is
# said.
set -euo pipefail
testing=
[ "${1:-}" != --test ] || { testing=1 && shift; }
target=${1:-}
. "$(dirname "$0")/lib.sh"

if [ "$testing" ] && ! command -v dpkg-deb >/dev/null; then
    say "no dpkg here: no package is made"
    exit
fi
PATH=$PATH:${CARGO_HOME:-$HOME/.cargo}/bin
# Without optimising it is there in a third of the time, and makes one package.
command -v cargo-deb >/dev/null || cargo install --locked --debug cargo-deb
if [ "$target" ]; then
    TILEDBFS_BIN=$TARGET/$target/release/tiledbfs
else
    cargo build --release --locked --quiet
fi
# What the list of files in Cargo.toml names.
made=$(dirname "$TILEDBFS_BIN")/package
rm -rf "$made"
"$TILEDBFS_BIN" man "$made/man"
gzip -9n "$made"/man/*
for shell in bash zsh fish; do
    "$TILEDBFS_BIN" completions "$shell" >"$made/$shell"
done
for helper in mount.tiledbfs mount.fuse.tiledbfs; do
    ln -s /usr/bin/tiledbfs "$made/$helper"
done
package=$(cargo deb --no-build --quiet ${target:+--target "$target"} --output "$TARGET/debian/")
say "made $package"
[ "$testing" ] || exit 0

root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
mkdir -p "$root/var/lib/dpkg/"{info,updates,triggers}
touch "$root/var/lib/dpkg/"{status,available}
as_root=()
[ "$(id -u)" -eq 0 ] || { need fakeroot=fakeroot && as_root=(fakeroot); }
apply() {
    "${as_root[@]}" dpkg --root="$root" --log=/dev/null --force-depends --force-not-root --force-script-chrootless "$@" >/dev/null 2>&1 ||
        die "dpkg $* failed"
}
apply --install "$package"
[ "$("$root/usr/bin/tiledbfs" --version | head -1)" = "$("$TILEDBFS_BIN" --version | head -1)" ] || die "another version"
for helper in mount.tiledbfs mount.fuse.tiledbfs; do
    [ "$(realpath "$root/usr/sbin/$helper")" = "$root/usr/bin/tiledbfs" ] || die "no $helper"
done
[ "$(stat -c %s "$root/usr/bin/tiledbfs")" -le 20000000 ] || die "the program is larger than 20 MB"
for file in share/man/man1/tiledbfs.1.gz share/man/man1/tiledbfs-mount.1.gz share/man/man8/mount.tiledbfs.8.gz \
    share/bash-completion/completions/tiledbfs share/zsh/vendor-completions/_tiledbfs \
    share/fish/vendor_completions.d/tiledbfs.fish lib/systemd/system/tiledbfs@.service \
    lib/systemd/system/tiledbfs-serve@.service lib/systemd/system/tiledbfs-serve@.socket share/doc/tiledbfs/copyright; do
    [ -s "$root/usr/$file" ] || die "no /usr/$file in the package"
done
apply --purge tiledbfs
left=$(find "$root" -path "$root/var/lib/dpkg" -prune -o ! -type d -print)
[ -z "$left" ] || die "left behind: $left"
say "the package installs and goes away again"
