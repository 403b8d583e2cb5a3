"""Rows on object stores: whole processes on both sides, through a proxy that counts requests and adds 30 ms to each.

The store is garage behind its Unix socket (`cargo install --locked garage --no-default-features --features bundled-libs,sqlite`, or GARAGE names
the program); without it moto, which answers 250 requests a second and so flatters nobody.
"""

import contextlib
import math
import os
import pathlib
import secrets
import shutil
import subprocess
import sys
import tempfile
import time

import arrays
from bench import MIB, median, seconds

sys.path.append(str(pathlib.Path(__file__).parent.parent / "tests/oracle"))
from proxy import Proxy  # noqa: E402
from stores import Moto, Server, clean_environment  # noqa: E402

LINK = {"latency": 0.03, "total_rate": 100 * MIB, "connection_rate": 40 * MIB}


class Garage(Server):
    """garage on one node, on a Unix socket: over TCP each answer waits 40 ms for a delayed acknowledgement."""

    def __init__(self, program):
        self.program = program

    def __enter__(self):
        self.key, self.secret = "GK" + secrets.token_hex(12), secrets.token_hex(32)
        with tempfile.NamedTemporaryFile("w", suffix=".toml", delete=False) as config:
            self.config = config.name
            self.data = tempfile.mkdtemp(prefix="tiledbfs-garage-")
            self.socket = f"{self.data}/s3.sock"
            config.write(f'metadata_dir = "{self.data}/meta"\ndata_dir = "{self.data}/data"\ndb_engine = "sqlite"\nreplication_factor = 1\n'
                         f'rpc_bind_addr = "127.0.0.1:3901"\nrpc_secret = "{secrets.token_hex(32)}"\n'
                         f'[s3_api]\ns3_region = "us-east-1"\napi_bind_addr = "{self.socket}"\nroot_domain = ".s3.localhost"\n')
        env = os.environ | {"GARAGE_DEFAULT_ACCESS_KEY": self.key, "GARAGE_DEFAULT_SECRET_KEY": self.secret, "GARAGE_DEFAULT_BUCKET": "bench"}
        self.start([self.program, "-c", self.config, "server", "--single-node", "--default-bucket"], env=env)
        end = time.monotonic() + 30
        while not os.path.exists(self.socket):
            if self.process.poll() is not None or time.monotonic() > end:
                raise SystemExit(f"garage does not start: {self.log.read_text()}")
            time.sleep(0.1)
        time.sleep(2)
        return self

    def __exit__(self, *arguments):
        super().__exit__(*arguments)
        shutil.rmtree(self.data)
        os.remove(self.config)

    @property
    def host(self):
        return self.socket


@contextlib.contextmanager
def store():
    """What the proxy asks, and keys for it."""
    program = os.environ.get("GARAGE") or shutil.which("garage")
    if program:
        with Garage(program) as garage:
            yield "garage", garage.host, garage.key, garage.secret
    else:
        print("  there is no garage: the store is moto", flush=True)
        with Moto() as moto:
            moto.bucket("bench")
            yield "moto", moto.host, "test", "hidden"


class Remote:
    """Arrays in a store, and both sides on them."""

    def __init__(self, bench, host, key, secret):
        self.bench, self.host, self.key, self.secret = bench, host, key, secret
        # Without delays, to put things there.
        self.direct = Proxy(host).__enter__()

    def config(self, proxy):
        return {
            "vfs.s3.endpoint_override": proxy.host, "vfs.s3.scheme": "http", "vfs.s3.use_virtual_addressing": "false", "vfs.s3.region": "us-east-1",
            "vfs.s3.aws_access_key_id": self.key, "vfs.s3.aws_secret_access_key": self.secret,
        }

    def load(self, name, path):
        """Puts the files of a local array below a name."""
        import boto3

        config = boto3.session.Config(request_checksum_calculation="when_required", retries={"max_attempts": 10}, read_timeout=120)
        client = boto3.client("s3", endpoint_url=self.direct.url, region_name="us-east-1", aws_access_key_id=self.key,
                              aws_secret_access_key=self.secret, config=config)
        for file in sorted(pathlib.Path(path).rglob("*")):
            if file.is_file():
                client.put_object(Bucket="bench", Key=f"{name}/{file.relative_to(path)}", Body=file.read_bytes())

    def ours(self, *arguments):
        """Seconds, and what went through, of a process of this program."""
        with Proxy(self.host, **LINK) as proxy:
            env = clean_environment() | {"AWS_ENDPOINT_URL": proxy.url, "AWS_REGION": "us-east-1", "AWS_ACCESS_KEY_ID": self.key,
                                         "AWS_SECRET_ACCESS_KEY": self.secret}
            start = time.perf_counter()
            subprocess.run([self.bench.program, *arguments], env=env, stdout=subprocess.DEVNULL, check=True)
            return time.perf_counter() - start, proxy.snapshot()

    def theirs(self, body):
        """The same of a Python with TileDB-Py."""
        with Proxy(self.host, **LINK) as proxy:
            code = f"import sys, tiledb\nctx = tiledb.Ctx({self.config(proxy)!r})\n{body}"
            start = time.perf_counter()
            subprocess.run([sys.executable, "-c", code], stdout=subprocess.DEVNULL, check=True)
            return time.perf_counter() - start, proxy.snapshot()

    def row(self, what, arguments, body, requests, ratio, rounds=None):
        """Requests, which are exact, and the ratio of times."""
        pairs = [(self.ours(*arguments), self.theirs(body)) for _ in range(rounds or self.bench.rounds)]
        (mine, counts), (its, its_counts) = pairs[-1]
        self.bench.row(f"{what}: requests", f"{counts.requests} against {its_counts.requests}", max(o[1].requests for o, _ in pairs), requests)
        self.bench.row(what, f"{seconds(median([o[0] for o, _ in pairs]))} against {seconds(median([t[0] for _, t in pairs]))}",
                       median([o[0] / t[0] for o, t in pairs]), ratio)
        return min(o[0] for o, _ in pairs), counts


OPEN = "a = tiledb.open('s3://bench/{}', ctx=ctx)\n"


def remote(bench):
    """s3:// through 30 ms a request, 100 MiB/s in all and 40 a connection."""
    size = bench.size
    column = arrays.other_floats(bench.folder, "single precision", size)
    few = arrays.fragments(bench.folder, 100)
    group = arrays.many_arrays(bench.folder, 26)
    with store() as (name, host, key, secret):
        it = Remote(bench, host, key, secret)
        print(f"  on {name}", flush=True)
        for what, path in (("column", column), ("few", few), ("group", group)):
            it.load(what, path)
        stored = sum(file.stat().st_size for file in column.rglob("a0.tdb"))
        url = "s3://bench/column"
        it.row("s3: ls, against opening", ["ls", url], OPEN.format("column"), 2, 0.4)
        it.row("s3: schema.json", ["cat", url, "schema.json"], "tiledb.ArraySchema.load('s3://bench/column', ctx=ctx)", 3, 0.5)
        info = "tiledb.array_fragments('s3://bench/{}', ctx=ctx)"
        it.row("s3: fragments.json of 1", ["cat", url, "fragments.json"], info.format("column"), 4, 0.5)
        it.row("s3: fragments.json of 100", ["cat", "s3://bench/few", "fragments.json"], info.format("few"), 105, 0.1)
        part = f"data/subarray/{MIB // 8 * 5}..{MIB // 8 * 6 - 1}/columns/a/data.bin"
        it.row("s3: a subarray of one tile", ["cat", url, part],
               OPEN.format("column") + f"sys.stdout.buffer.write(a[{MIB // 8 * 5}:{MIB // 8 * 6}]['a'].tobytes())", 6, 0.6)
        names = "v = tiledb.VFS(ctx=ctx)\n"
        it.row("s3: every schema.json of a group's directory", ["cat", "s3://bench/group", "*/schema.json"],
               names + "[tiledb.ArraySchema.load(u, ctx=ctx) for u in v.ls('s3://bench/group')]", 60, 1.5)
        fastest, counts = it.row(f"s3: a ZSTD column of {size // MIB} MiB", ["cat", url, "fragments/latest/columns/a/data.bin"],
                                 OPEN.format("column") + "sys.stdout.buffer.write(a[:]['a'].tobytes())", 10 + math.ceil(stored / (4 * MIB)), 0.6)
        bench.row("  bytes fetched / stored", f"{counts.bytes / MIB:.1f} MiB of {stored / MIB:.1f}", counts.bytes / stored, 1.05)
        least = stored / LINK["total_rate"]
        bench.row("  least time of the link / ours", f"{seconds(least)} / {seconds(fastest)}", least / fastest, 0.8, at_least=True)
        it.direct.__exit__()


ROWS = {"remote": remote}
