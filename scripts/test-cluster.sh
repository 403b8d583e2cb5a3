#!/usr/bin/env bash
# Runs the recipes of examples/cluster with Spark, Dask, Ray and ssh on three machines, which are namespaces
# here, over mounts of one store, and takes executors, daemons and mounts away while they run. It takes a
# quarter of an hour; scripts/test.sh leaves it out, because it needs a JVM.
#
#   scripts/test-cluster.sh [recipes]  the recipes, undisturbed and disturbed
#   scripts/test-cluster.sh changes    those of them in which the array is written, consolidated and vacuumed
#   scripts/test-cluster.sh measure    what engines fetch: the table of docs/cluster.md
#   scripts/test-cluster.sh network    how long jobs take that wait for the network, on one machine and on two
#   scripts/test-cluster.sh manifests  whether the manifests of examples/cluster/k8s are valid
#   scripts/test-cluster.sh interrupt  ends runs in their middle by INT, TERM and KILL; looks for what is left
#
# Names of engines may follow the first four: Spark "Dask, table" "Dask, Zarr" Ray ssh. TILEDBFS_BIN may name
# the program; else a release build is made.
set -euo pipefail
program=${TILEDBFS_BIN:-}
. "$(dirname "$0")/lib.sh"
VENV=$TARGET/cluster-venv
PYTHON=$VENV/bin/python
task=${1:-recipes}
namespaces=

# with VARIABLE=VALUE: the processes that have it in their environment.
with() { grep -l -s -z -x -F "$1" /proc/[0-9]*/environ || true; }

run() {
    local mark=TILEDBFS_CLUSTER=$$ status=0
    trap '[ -z "$namespaces" ] || kill -KILL "$namespaces" 2>/dev/null || true' EXIT
    trap 'exit 130' INT
    trap 'exit 143' TERM HUP
    # Whoever ends this script, be it by KILL, ends `unshare`, and with it the first process of the
    # namespaces, and so all that is in them.
    env "$mark" setpriv --pdeathsig KILL unshare --kill-child=KILL --fork --pid --mount-proc --mount --net -- \
        "$PYTHON" tests/oracle/cluster_engines.py "$@" &
    namespaces=$!
    wait "$namespaces" || status=$?
    namespaces=
    [ -z "$(with "$mark")" ] || die "processes are left: $(with "$mark")"
    return "$status"
}

manifests() {
    local file
    for file in examples/cluster/k8s/*.yaml; do
        "$VENV/bin/kubernetes-validate" --strict "$file"
        # A misspelt key would be found.
        ! sed 's/mountPropagation/mountPropagating/' "$file" | "$VENV/bin/kubernetes-validate" --strict --quiet - >/dev/null || die "$file: not validated"
    done
}

interrupt() {
    local signal mark left
    for signal in INT TERM KILL; do
        mark=TILEDBFS_INTERRUPTED=$$-$signal
        # Of a command in the background INT is ignored.
        env --default-signal=INT "$mark" TILEDBFS_BIN="$TILEDBFS_BIN" scripts/test-cluster.sh recipes ssh >/dev/null 2>&1 &
        until [ "$(with "$mark" | sed 's/environ$/cmdline/' | xargs -r grep -l -s -a in-background | wc -l)" -ge 3 ]; do
            kill -0 $! || die "the run ended by itself"
            sleep 0.2
        done
        sleep 2
        kill -"$signal" $!
        wait $! 2>/dev/null || true
        sleep 1
        left=$(with "$mark"; grep s3://cluster/arrays /proc/self/mounts || true; ip -o link | grep -E ': (bridge|link[0-9])' || true)
        [ -z "$left" ] || die "$signal: left are $left"
        say "$signal: nothing is left"
    done
}

[ "$(id -u)" -eq 0 ] || die "needs root, for namespaces"
case $ROOT/ in /mnt/*) die "the checkout is below /mnt, which the machines cover" ;; esac
need java=default-jre-headless ip=iproute2 nsenter=util-linux dropbear=dropbear-bin ssh=openssh-client jq=jq
ensure_venv examples/cluster/requirements.txt
if [ -n "$program" ]; then
    TILEDBFS_BIN=$(realpath "$program")
else
    ensure_system
    build_release
fi
case $task in
    manifests | interrupt) "$task" ;;
    *) run "$@" ;;
esac
