#!/usr/bin/env bash
# Puts tiledbfs in place, or takes it away again: scripts/install.sh [--uninstall] [PREFIX]. PREFIX is /usr/local unless given.
# What is installed: the program, stripped; mount.tiledbfs, by which mount(8) and /etc/fstab know it; the manual; completions of bash, zsh
# and fish; a unit of systemd. It is built first, unless TILEDBFS_BIN names the program. DESTDIR, if set, stands before all paths.
set -euo pipefail
program=${TILEDBFS_BIN:-}
umask 022

uninstall=
prefix=
for argument; do
    case $argument in
    --uninstall) uninstall=1 ;;
    -*)
        sed -n '2,4s/^# //p' "$0" >&2
        exit 2
        ;;
    *) prefix=$(realpath -m "$argument") ;;
    esac
done
. "$(dirname "$0")/lib.sh"
prefix=${prefix:-/usr/local}
dest=${DESTDIR:-}

# mount(8) looks for helpers in /sbin alone.
case $prefix in
/usr | /usr/local) helper=/sbin/mount.tiledbfs ;;
*) helper=$prefix/sbin/mount.tiledbfs ;;
esac
share=$prefix/share
bash_completion=$share/bash-completion/completions/tiledbfs
zsh_completion=$share/zsh/site-functions/_tiledbfs
fish_completion=$share/fish/vendor_completions.d/tiledbfs.fish
unit=$prefix/lib/systemd/system/tiledbfs@.service

if [ "$uninstall" ]; then
    link=$(readlink "$dest$helper" || true)
    # One that leads to another installation is not ours.
    [ "$link" != "$prefix/bin/tiledbfs" ] || rm -f "$dest$helper"
    for file in "$prefix/bin/tiledbfs" "$share/man/man1/tiledbfs.1" "$share/man/man8/mount.tiledbfs.8" \
        "$bash_completion" "$zsh_completion" "$fish_completion" "$unit"; do
        rm -f "$dest$file"
    done
    rm -f "$dest$share"/man/man1/tiledbfs-*.1
    say "took tiledbfs out of $dest$prefix"
    exit
fi

if [ -z "$program" ]; then
    PATH=$PATH:${CARGO_HOME:-$HOME/.cargo}/bin
    command -v cargo >/dev/null || die "cargo not found: install Rust (https://rustup.rs), or set TILEDBFS_BIN"
    cargo build --release --locked --quiet
    program=$TARGET/release/tiledbfs
fi
need strip=binutils
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
"$program" man "$scratch/man"
for shell in bash zsh fish; do
    "$program" completions "$shell" >"$scratch/$shell"
done
sed "s|/usr/bin/tiledbfs|$prefix/bin/tiledbfs|g" systemd/tiledbfs@.service >"$scratch/unit"

install -D -s -m 755 "$program" "$dest$prefix/bin/tiledbfs"
for page in "$scratch"/man/*.[18]; do
    install -D -m 644 "$page" "$dest$share/man/man${page##*.}/${page##*/}"
done
install -D -m 644 "$scratch/bash" "$dest$bash_completion"
install -D -m 644 "$scratch/zsh" "$dest$zsh_completion"
install -D -m 644 "$scratch/fish" "$dest$fish_completion"
install -D -m 644 "$scratch/unit" "$dest$unit"
mkdir -p "$dest${helper%/*}"
ln -sfn "$prefix/bin/tiledbfs" "$dest$helper"
say "installed in $dest$prefix"
if [ "$helper" != /sbin/mount.tiledbfs ]; then
    say "for mount -t tiledbfs and /etc/fstab, as root: ln -s $prefix/bin/tiledbfs /sbin/mount.tiledbfs"
fi
