#!/usr/bin/env bash
# Puts tiledbfs in place, or takes it away again: scripts/install.sh [--uninstall] [PREFIX]. PREFIX is
# /usr/local unless given.
# What is installed: the program; mount.tiledbfs and mount.fuse.tiledbfs, by which mount(8) and /etc/fstab
# know it; the manual; completions of bash, zsh and fish; units of systemd. It is built first, unless
# TILEDBFS_BIN names the program. DESTDIR, if set, stands before all paths. Directories that are made are
# remembered, and taken away when they are empty.
set -euo pipefail
# Paths are those of the caller: lib.sh changes the directory.
program=${TILEDBFS_BIN:+$(realpath -m "$TILEDBFS_BIN")}
dest=${DESTDIR:+$(realpath -m "$DESTDIR")}
umask 022

uninstall=
prefix=
for argument; do
    case $argument in
    --uninstall) uninstall=1 ;;
    -*)
        sed -n '2,7s/^# //p' "$0" >&2
        exit 2
        ;;
    *) prefix=$(realpath -m "$argument") ;;
    esac
done
. "$(dirname "$0")/lib.sh"
prefix=${prefix:-/usr/local}

# mount(8) looks for helpers in /sbin alone.
case $prefix in
/usr | /usr/local) sbin=/sbin ;;
*) sbin=$prefix/sbin ;;
esac
# By type: tiledbfs, and fuse.tiledbfs, for which mount(8) would call mount.fuse, which does not know all
# options of fstab.
helpers=("$sbin/mount.tiledbfs" "$sbin/mount.fuse.tiledbfs")
share=$prefix/share
bash_completion=$share/bash-completion/completions/tiledbfs
zsh_completion=$share/zsh/site-functions/_tiledbfs
fish_completion=$share/fish/vendor_completions.d/tiledbfs.fish
units=$prefix/lib/systemd/system
# The directories that did not exist before, one a line, without DESTDIR.
made=$share/tiledbfs/directories

if [ "$uninstall" ]; then
    directories=$(LC_ALL=C sort -r "$dest$made" 2>/dev/null || true)
    for helper in "${helpers[@]}"; do
        link=$(readlink "$dest$helper" || true)
        # One that leads to another installation is not ours.
        [ "$link" != "$prefix/bin/tiledbfs" ] || rm -f "$dest$helper"
    done
    for file in "$prefix/bin/tiledbfs" "$share/man/man1/tiledbfs.1" "$share/man/man8/mount.tiledbfs.8" \
        "$bash_completion" "$zsh_completion" "$fish_completion" "$units"/tiledbfs{,-serve}@.service "$units/tiledbfs-serve@.socket" "$made"; do
        rm -f "$dest$file"
    done
    rm -f "$dest$share"/man/man1/tiledbfs-*.1
    # From the inside out.
    while read -r directory; do
        [ -z "$directory" ] || rmdir --ignore-fail-on-non-empty "$dest$directory" 2>/dev/null || true
    done <<<"$directories"
    say "took tiledbfs out of $dest$prefix"
    exit
fi

if [ -z "$program" ]; then
    as_caller=()
    if [ "$(id -u)" -eq 0 ] && [ "${SUDO_USER:-root}" != root ]; then
        # sudo has taken away the caller's PATH and HOME, where Rust is; and what is built should not be
        # root's.
        as_caller=(runuser -u "$SUDO_USER" --)
        HOME=$(getent passwd "$SUDO_USER" | cut -d: -f6)
        export HOME
    fi
    PATH=$PATH:${CARGO_HOME:-$HOME/.cargo}/bin
    command -v cargo >/dev/null || die "cargo not found: install Rust (https://rustup.rs), or set TILEDBFS_BIN"
    "${as_caller[@]}" cargo build --release --locked --quiet
    program=$TARGET/release/tiledbfs
fi
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
"$program" man "$scratch/man"
for shell in bash zsh fish; do
    "$program" completions "$shell" >"$scratch/$shell"
done

# make_directory PATH: with all above it, remembering those that did not exist.
make_directory() {
    [ ! -d "$dest$1" ] || return 0
    [ "$1" = / ] || make_directory "$(dirname "$1")"
    mkdir -p "$dest$1"
    printf '%s\n' "$1" >>"$scratch/directories"
}

# put MODE FILE PATH
put() {
    make_directory "$(dirname "$3")"
    install -m "$1" "$2" "$dest$3"
}

# Those of an earlier installation are remembered still.
cat "$dest$made" >"$scratch/directories" 2>/dev/null || true
put 755 "$program" "$prefix/bin/tiledbfs"
for page in "$scratch"/man/*.[18]; do
    put 644 "$page" "$share/man/man${page##*.}/${page##*/}"
done
put 644 "$scratch/bash" "$bash_completion"
put 644 "$scratch/zsh" "$zsh_completion"
put 644 "$scratch/fish" "$fish_completion"
for unit in systemd/*; do
    sed "s|/usr/bin/tiledbfs|$prefix/bin/tiledbfs|g" "$unit" >"$scratch/unit"
    put 644 "$scratch/unit" "$units/${unit##*/}"
done
make_directory "$sbin"
for helper in "${helpers[@]}"; do
    ln -sfn "$prefix/bin/tiledbfs" "$dest$helper"
done
make_directory "${made%/*}"
put 644 "$scratch/directories" "$made"
say "installed in $dest$prefix"
if [ "$sbin" != /sbin ]; then
    say "for mount -t tiledbfs and /etc/fstab, as root: ln -s ${helpers[*]} /sbin"
fi
