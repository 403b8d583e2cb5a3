"""The recipes of examples/cluster on three machines (machines.py): right, or an error, and never wrong, whatever is taken away.

    scripts/test-cluster.sh [recipes | changes | measure | network] [ENGINE...]

What libtiledb reads is the truth. The last line of `recipes` is `N passed, N failed`.
"""

import contextlib
import glob
import json
import os
import re
import subprocess
import sys
import threading
import time
import urllib.request
from pathlib import Path

import numpy as np
import tiledb

from cluster_arrays import VALUES, stored, write_arrays
from machines import HOME, POINT, Cluster, sh
from mount import ROOT
from plain_tools import Checks
from stores import Wrong

EXAMPLES = ROOT / "examples/cluster"
BIN = Path(sys.executable).parent
ROWS, COLUMNS = 12_288, 1024
EVENTS = 3_000_000
MIB = 1 << 20
LIMIT = 600
"""The most seconds of a job."""


def eventually(what, condition, seconds=240):
    """Waits until a condition holds."""
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            raise SystemExit(f"{what}: not within {seconds} s")
        time.sleep(0.2)


# The engines. Machine 0 has the driver and the master, the others the workers.


class Spark:
    """Spark standalone."""

    name = "Spark"
    executor = "CoarseGrainedExecutorBackend"
    home = Path(glob.glob(str(BIN.parent / "lib/python3*/site-packages/pyspark"))[0])

    def env(self, machine):
        """The variables of all its processes on a machine."""
        return {"SPARK_HOME": str(self.home), "SPARK_LOCAL_IP": machine.address, "SPARK_LOCAL_DIRS": "/mnt/tmp", "SPARK_WORKER_DIR": "/mnt/tmp",
                "SPARK_DAEMON_MEMORY": "256m", "PYSPARK_PYTHON": sys.executable}

    def start(self, cluster, workers):
        """Starts it with these machines as workers."""
        head = cluster.machines[0]
        launch = [self.home / "bin/spark-class", "org.apache.spark.deploy"]
        head.start("spark", launch[0], f"{launch[1]}.master.Master", "--host", head.address, "--port", 7077, "--webui-port", 8080, env=self.env(head))
        for worker in workers:
            worker.start("spark", launch[0], f"{launch[1]}.worker.Worker", "--host", worker.address, "--cores", 1, "--memory", "1g",
                         f"spark://{head.address}:7077", env=self.env(worker))

        def ready():
            with contextlib.suppress(OSError), urllib.request.urlopen(f"http://{head.address}:8080/json/", timeout=5) as page:
                return f'"aliveworkers" : {len(workers)}' in page.read().decode()
            return False

        eventually("Spark's workers", ready)

    def query(self, cluster, array, query):
        """A query's command, and its environment."""
        head = cluster.machines[0]
        command = [self.home / "bin/spark-submit", "--master", f"spark://{head.address}:7077", "--properties-file", EXAMPLES / "spark-defaults.conf",
                   "--driver-memory", "1g", "--conf", f"spark.driver.host={head.address}", "--conf", "spark.executor.memory=512m",
                   EXAMPLES / "spark_table.py", f"{POINT}/{array}", query]
        return command, self.env(head)

    def job(self, cluster, array):
        """The recipe on attribute `a`."""
        return self.query(cluster, array, "SELECT count(a), sum(a) FROM cells")


class DaskTable:
    """Dask, of table.parquet."""

    name = "Dask, table"
    recipe = "dask_table.py"
    executor = "spawn_main"

    def start(self, cluster, workers):
        """Starts it with these machines as workers."""
        head = cluster.machines[0]
        head.start("dask", BIN / "dask", "scheduler", "--host", head.address, "--port", 8786, "--no-dashboard")
        for worker in workers:
            worker.start("dask", BIN / "dask", "worker", f"tcp://{head.address}:8786", "--host", worker.address, "--nthreads", 1, "--no-dashboard",
                         "--memory-limit", "2GB", "--local-directory", "/mnt/tmp", "--preload", EXAMPLES / "leave_without_mount.py")
        from distributed import Client

        with Client(f"tcp://{head.address}:8786") as client:
            client.wait_for_workers(len(workers), timeout=240)

    def job(self, cluster, array, name="a"):
        """The recipe on attribute `a`."""
        return [sys.executable, EXAMPLES / self.recipe, f"tcp://{cluster.machines[0].address}:8786", f"{POINT}/{array}", name], {}


class DaskZarr(DaskTable):
    """Dask, of array.zarr."""

    name = "Dask, Zarr"
    recipe = "dask_zarr.py"


class Ray:
    """Ray."""

    name = "Ray"
    executor = "ray::"
    env = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_DISABLE_IMPORT_WARNING": "1"}

    def start(self, cluster, workers):
        """Starts it with these machines as workers."""
        head = cluster.machines[0]
        memory = f"--object-store-memory={100 * MIB}"
        command = [BIN / "ray", "start", "--block", "--disable-usage-stats", memory]
        head.start("ray", *command, "--head", f"--node-ip-address={head.address}", "--port=6379", "--num-cpus=0", "--temp-dir=/mnt/tmp/ray",
                   "--include-dashboard=false", env=self.env)
        eventually("Ray's head", lambda: subprocess.run(head.command("bash", "-c", f"</dev/tcp/{head.address}/6379"), capture_output=True).returncode == 0)
        for worker in workers:
            worker.start("ray", *command, f"--address={head.address}:6379", f"--node-ip-address={worker.address}", "--num-cpus=1", env=self.env)
        count = f"import ray; ray.init('{head.address}:6379', log_to_driver=False); print('nodes', sum(n['Alive'] for n in ray.nodes()))"
        eventually("Ray's workers", lambda: f"nodes {len(workers) + 1}\n" in head.run(sys.executable, "-c", count))

    def job(self, cluster, array):
        """The recipe on attribute `a`."""
        return [sys.executable, EXAMPLES / "ray_table.py", f"{cluster.machines[0].address}:6379", f"{POINT}/{array}", "a"], self.env


class Ssh:
    """ssh."""

    name = "ssh"
    executor = "od -A n"
    parts = 12

    def start(self, cluster, workers):
        """Starts servers on these machines."""
        self.workers = workers
        keys = HOME / ".ssh"
        if not (keys / "id_ed25519").exists():
            sh("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", keys / "id_ed25519")
            (keys / "authorized_keys").write_bytes((keys / "id_ed25519.pub").read_bytes())
            (keys / "config").write_text("StrictHostKeyChecking no\nUserKnownHostsFile /dev/null\nLogLevel ERROR\n")
            sh("dropbearkey", "-t", "ed25519", "-f", keys / "host")
        for worker in workers:
            worker.start("ssh", "dropbear", "-F", "-E", "-s", "-r", keys / "host", "-p", "22")
            eventually("sshd", lambda: subprocess.run(worker.command("bash", "-c", "</dev/tcp/127.0.0.1/22"), capture_output=True).returncode == 0)

    def job(self, cluster, array):
        """The recipe on attribute `a`."""
        rows = (ROWS if array == "grid" else Live.ROWS) // self.parts
        return [EXAMPLES / "parts.sh", f"{POINT}/{array}", "a", rows, *(worker.name for worker in self.workers)], {}


ENGINES = [Spark(), DaskTable(), DaskZarr(), Ray(), Ssh()]


class Outcome:
    """What a job printed."""

    def __init__(self, cluster, command, env):
        start = time.monotonic()
        head = cluster.machines[0]
        try:
            done = subprocess.run(head.command(*command), stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=LIMIT,
                                  env=head.env(**env), cwd="/mnt/tmp", check=False)
            self.status, self.output, self.errors = done.returncode, done.stdout, done.stderr
        except subprocess.TimeoutExpired as expired:
            self.status, self.output, self.errors = "no end", "", (expired.stderr or b"").decode(errors="replace")
        self.seconds = time.monotonic() - start
        found = re.search(r"^of (\S+)$", self.output, re.MULTILINE)
        self.pinned = found and found.group(1)

    def numbers(self):
        """The numbers of the last line that has nothing but those: Ray prints errors of tasks that it tried again, before the result and after it."""
        return [int(number) for number in re.findall(r"^(-?\d+)(?: parts,)? ?(-?\d+)?$", self.output, re.MULTILINE)[-1] if number]

    def judge(self, live, engine):
        """right, error or wrong: the number of cells, or of parts, and the sum."""
        if self.status:
            return "error"
        number = engine.parts if engine.name == "ssh" else Live.ROWS * Live.COLUMNS
        return "right" if self.numbers() == [number, live.at(self.pinned)] else "wrong"

    def note(self, verdict):
        """What there is to say of a verdict."""
        return {"right": "", "error": f" ({self.reason()})", "wrong": f" ({self.output[-200:]})"}[verdict]

    def reason(self):
        """The last line that names an error."""
        lines = [line for line in self.errors.splitlines() if re.search(r"Error|Exception|error|No such|not connected", line) and " INFO " not in line]
        return lines[-1].strip()[:200] if lines else self.errors[-200:]


# The arrays.


class Live:
    """An array that is written, consolidated and vacuumed all the time, and what it held when."""

    ROWS, COLUMNS = 3072, 512
    URI = "s3://cluster/arrays/live"

    def __init__(self, moto):
        self.ctx = tiledb.Ctx(moto.tiledb())
        self.random = np.random.default_rng(28)
        self.states = {}
        self.counts = {"commits": 0, "consolidations": 0, "vacuums": 0}
        vfs = tiledb.VFS(ctx=self.ctx)
        if vfs.is_dir(self.URI):
            vfs.remove_dir(self.URI)
        domain = tiledb.Domain(tiledb.Dim("y", (0, self.ROWS - 1), 128, dtype=np.int32), tiledb.Dim("x", (0, self.COLUMNS - 1), self.COLUMNS, dtype=np.int32))
        attribute = tiledb.Attr("a", dtype=np.int32, filters=tiledb.FilterList([tiledb.ZstdFilter(3)]))
        tiledb.Array.create(self.URI, tiledb.ArraySchema(domain, [attribute]), ctx=self.ctx)
        self.values = np.zeros((self.ROWS, self.COLUMNS), np.int32)
        self.write(0, self.ROWS)

    def write(self, low, high):
        """Writes these rows anew."""
        self.values[low:high] = self.random.integers(0, 1 << 25, (high - low, self.COLUMNS), np.int32)
        time.sleep(0.005)
        stamp = int(time.time() * 1000)
        with tiledb.open(self.URI, "w", ctx=self.ctx, timestamp=stamp) as array:
            array[low:high] = self.values[low:high]
        self.states[stamp] = int(self.values.sum(dtype=np.int64))
        self.counts["commits"] += 1

    def change(self, vacuum):
        """Three writes, and they are consolidated, and vacuumed if so wanted."""
        for _ in range(3):
            low = int(self.random.integers(0, self.ROWS - 200))
            self.write(low, low + 200)
        for mode in ("fragments", "commits", "fragment_meta"):
            config = tiledb.Config({"sm.consolidation.mode": mode, "sm.vacuum.mode": mode})
            tiledb.consolidate(self.URI, config=config, ctx=self.ctx)
            self.counts["consolidations"] += 1
            if vacuum:
                tiledb.vacuum(self.URI, config=config, ctx=self.ctx)
                self.counts["vacuums"] += 1

    @contextlib.contextmanager
    def changing(self, vacuum):
        """Changes it all the time, in a thread."""
        stop = threading.Event()

        def work():
            while not stop.wait(0.5):
                self.change(vacuum)

        thread = threading.Thread(target=work)
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join()

    def at(self, pinned):
        """The sum at the time or pin that a path ends with."""
        stamp = pinned.rsplit("/", 1)[1].partition("~")[0].removesuffix("Z").replace(":", "")
        stamp = re.sub(r"T(\d\d)(\d\d)(\d\d)", r"T\1:\2:\3", stamp)
        time_ms = int(np.datetime64(stamp, "ms").astype(np.int64))
        return self.states[max(stamp for stamp in self.states if stamp <= time_ms)]


# What is run.


def disturbances(engine):
    """What happens to machine 2 when it has fetched a part."""
    return {
        "nothing": None,
        "executor killed": lambda machine: machine.kill(engine.executor),
        "daemon killed": lambda machine: machine.kill_daemon(),
        "unmounted, mounted again": lambda machine: machine.remount(),
    }


def attempt(action, machine):
    """Does it: "done", or what went wrong."""
    try:
        action(machine)
    except (Wrong, SystemExit) as error:
        return str(error)
    return "done"


def recipes(cluster, engines):
    """Each recipe, undisturbed and disturbed."""
    checks, table = Checks(), []
    live = Live(cluster.moto)
    worker = cluster.machines[2]
    for engine in engines:
        row = {}
        for what, action in disturbances(engine).items():
            cluster.limit(MIB)
            cluster.mount()
            engine.start(cluster, cluster.machines[1:])
            happened = []
            if action:
                worker.proxy.fault("call", path=VALUES, skip=2, call=lambda: happened.append(attempt(action, worker)))
            outcome = Outcome(cluster, *engine.job(cluster, "live"))
            verdict = outcome.judge(live, engine)
            row[what] = verdict
            print(f"     {engine.name}, {what}: {verdict} in {outcome.seconds:.0f} s{outcome.note(verdict)}", flush=True)
            checks.equal(f"{engine.name}, {what}: it happened while the job ran", happened, ["done"] if action else [])
            checks.equal(f"{engine.name}, {what}: right", verdict, "right")
            cluster.stop_services()
        row |= written(cluster, engine, checks, live)
        table.append((engine.name, row))
    print(f"\n| engine | {' | '.join(table[0][1])} |\n|---|{'---|' * len(table[0][1])}")
    for name, row in table:
        print(f"| {name} | {' | '.join(row.values())} |")
    print(f"{checks.passed} passed, {checks.failed} failed")
    return checks.failed > 0


def written(cluster, engine, checks, live):
    """A pinned job while the array changes. Without vacuum it is right, with vacuum right or an error. Returns both verdicts."""
    cluster.limit(MIB)
    engine.start(cluster, cluster.machines[1:])
    row = {}
    for vacuum in (False, True):
        what = "vacuumed" if vacuum else "written, consolidated"
        cluster.mount()
        for machine in cluster.machines[1:]:
            # What these know is older than what the job is about.
            machine.run("ls", f"{POINT}/live/data")
        live.change(vacuum)
        before = dict(live.counts)
        with live.changing(vacuum):
            outcome = Outcome(cluster, *engine.job(cluster, "live"))
        verdict = row[what] = outcome.judge(live, engine)
        meanwhile = {name: count - before[name] for name, count in live.counts.items()}
        print(f"     {engine.name}, {what}: {verdict} in {outcome.seconds:.0f} s, {meanwhile}{outcome.note(verdict)}", flush=True)
        checks.equal(f"{engine.name}, {what}: {'never wrong' if vacuum else 'right'}", verdict in (("right", "error") if vacuum else ("right",)), True)
        checks.equal(f"{engine.name}, {what}: it was, while the job ran", meanwhile["vacuums" if vacuum else "consolidations"] > 0, True)
    cluster.stop_services()
    return row


DASK = """
import dask.dataframe, os, sys, xarray
from distributed import Client
scheduler, array, low, high = sys.argv[1:]
pinned = os.path.realpath(f"{array}/at/latest")
"""
DASK_FILTER = DASK + """
with Client(scheduler):
    chosen = [("y", ">=", int(low)), ("y", "<=", int(high))]
    cells = dask.dataframe.read_parquet(f"{pinned}/data/table.parquet", columns=["a"], split_row_groups=True, filters=chosen)
    print(*dask.compute(cells["a"].count(), cells["a"].sum()))
"""
DASK_MEAN = DASK + """
with Client(scheduler):
    data = xarray.open_zarr(f"{pinned}/data/array.zarr")["a"]
    print(data.shape[1], int(data.sum("y").compute().astype("i8").sum()))
"""


def measured_jobs(cluster, folder):
    """The jobs that are measured, by engine: what, bytes needed, the command with its environment, and the numbers that it must print."""
    grid, events = f"{folder}/grid", f"{folder}/events"
    a, b = stored(grid, r"a0\.tdb"), stored(grid, r"a1\.tdb")
    text = stored(events, r"(d0|a0|a0_var)\.tdb")
    with tiledb.open(grid) as array:
        values = {name: array.query(attrs=[name])[:][name] for name in "ab"}
    sums = {name: int(column.sum(dtype=np.float64)) for name, column in values.items()}
    cells = ROWS * COLUMNS
    low, high = two_groups(cluster)
    part = values["a"][low : high + 1]
    chosen, share = [part.size, int(part.sum(dtype=np.int64))], a * part.size // cells
    spark, table, zarr, ray, ssh = ENGINES
    ssh.workers = cluster.machines[1:]
    address = f"tcp://{cluster.machines[0].address}:8786"
    dask = lambda code: ([sys.executable, "-c", code, address, f"{POINT}/grid", low, high], {})
    return {
        spark: [
            ("sum(a)", a, spark.job(cluster, "grid"), [cells, sums["a"]]),
            ("sum(a), sum(b)", a + b, spark.query(cluster, "grid", "SELECT sum(a), CAST(sum(b) AS BIGINT) FROM cells"), [sums["a"], sums["b"]]),
            ("sum(a), `y` in two row groups", share,
             spark.query(cluster, "grid", f"SELECT count(a), sum(a) FROM cells WHERE y BETWEEN {low} AND {high}"), chosen),
            ("events: group by text", text,
             spark.query(cluster, "events", "SELECT count(*), sum(n) FROM (SELECT count(*) AS n FROM cells GROUP BY host)"), [1000, EVENTS]),
            ("count(*): the footer alone", None, spark.query(cluster, "grid", "SELECT count(*), count(*) FROM cells"), [cells, cells]),
        ],
        table: [
            ("sum(a)", a, table.job(cluster, "grid"), [cells, sums["a"]]),
            ("sum(a), `y` in two row groups", share, dask(DASK_FILTER), chosen),
        ],
        zarr: [
            ("sum(a)", a, zarr.job(cluster, "grid"), [cells, sums["a"]]),
            ("sum(a) along y", a, dask(DASK_MEAN), [COLUMNS, sums["a"]]),
        ],
        ray: [("sum(a)", a, ray.job(cluster, "grid"), [cells, sums["a"]])],
        ssh: [("sum(a), 12 subarrays", a, ssh.job(cluster, "grid"), [ssh.parts, sums["a"]])],
    }


def two_groups(cluster):
    """The first and the last `y` of two row groups in the middle of `grid`."""
    import pyarrow.parquet

    cluster.mount()
    path = f"/proc/{cluster.machines[0].holder.pid}/root{POINT}/grid/data/table.parquet"
    file = pyarrow.parquet.ParquetFile(path).metadata
    middle = file.num_row_groups // 2
    low, high = (file.row_group(group).column(0).statistics for group in (middle, middle + 1))
    return low.min, high.max


def load_arrays(cluster):
    """Writes `grid` and `events`, and loads them into the store. Returns their folder."""
    folder = "/mnt/written"
    os.mkdir(folder)
    write_arrays(folder, ROWS, COLUMNS, 256, EVENTS, 10_000)
    cluster.moto.load("cluster", "arrays", folder)
    return folder


def measure(cluster, engines):
    """What engines fetch, on cold mounts."""
    folder = load_arrays(cluster)
    workers = cluster.machines[1:]
    rows = []
    for engine, jobs in measured_jobs(cluster, folder).items():
        if engine not in engines:
            continue
        engine.start(cluster, workers)
        for what, needed, (command, env), want in jobs:
            cluster.mount()
            outcome = Outcome(cluster, command, env)
            right = "yes" if outcome.status == 0 and outcome.numbers() == want else f"NO: {outcome.output[-100:]} {outcome.reason()}"
            fetched = [machine.fetched() for machine in cluster.machines]
            read = [json.loads(machine.run("cat", f"{POINT}/.tiledbfs/stats.json"))["bytes_read"] for machine in workers]
            mega = lambda count: f"{count / 1e6:.1f}"
            against = (mega(needed), f"{sum(fetched) / needed:.2f}") if needed else ("", "")
            row = [engine.name, what, right, " + ".join(map(mega, fetched)), *against, f"{max(read) * 2 / max(1, sum(read)):.2f}"]
            rows.append(row)
            print(f"| {' | '.join(row)} | {outcome.seconds:.0f} s", flush=True)
        cluster.stop_services()
    print("\n| engine | job | = TileDB-Py | fetched, MB | needed, MB | ratio | work, most / mean |\n|---|---|---|--:|--:|--:|--:|")
    for row in rows:
        print(f"| {' | '.join(row)} |")
    return not all(row[2] == "yes" for row in rows)


def network(cluster, engines):
    """How long a job takes that waits for the network, from the first request for values to the last byte."""
    folder = load_arrays(cluster)
    jobs = measured_jobs(cluster, folder)
    rate = 4 * MIB
    for engine in engines:
        what, needed, (command, env), want = jobs[engine][1 if engine.name == "Spark" else 0]
        for count in (1, 2, 1, 2):
            engine.start(cluster, cluster.machines[1 : count + 1])
            cluster.limit(rate)
            cluster.mount()
            if engine.name == "ssh":
                command, env = engine.job(cluster, "grid")
            outcome = Outcome(cluster, command, env)
            asked = [request for machine in cluster.machines for request in machine.proxy.log if request.kind == "get" and re.search(VALUES, request.path)]
            seconds = max(request.end for request in asked) - min(request.at for request in asked)
            right = outcome.status == 0 and outcome.numbers() == want
            fetched = sum(request.bytes for request in asked)
            print(f"{engine.name}, {what}, {count} machines: right: {right}, {seconds:.1f} s, fetched {fetched / 1e6:.1f} of {needed / 1e6:.1f} MB, "
                  f"floor {needed / rate / count:.1f} s, whole {outcome.seconds:.0f} s, load {os.getloadavg()[0]:.1f}", flush=True)
            cluster.limit(None)
            cluster.stop_services()
    return 0


def main():
    """Runs one of the tasks."""
    task, *names = sys.argv[1:] or ["recipes"]
    engines = [engine for engine in ENGINES if not names or engine.name in names]
    with Cluster() as cluster:
        return TASKS[task](cluster, engines)


def changes(cluster, engines):
    """The part of `recipes` in which the array changes."""
    checks, live = Checks(), Live(cluster.moto)
    for engine in engines:
        written(cluster, engine, checks, live)
    print(f"{checks.passed} passed, {checks.failed} failed")
    return checks.failed > 0


TASKS = {"recipes": recipes, "changes": changes, "measure": measure, "network": network}


if __name__ == "__main__":
    sys.exit(main())
