"""garage, the object store that is measured: on one node, with what was put there kept from run to run."""

import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time

sys.path.append(str(pathlib.Path(__file__).parent.parent / "tests/oracle"))
from proxy import Proxy  # noqa: E402
from stores import Server, clean_environment, free_port  # noqa: E402

# It is asked on loopback alone.
KEY, SECRET = "GK" + "0123456789ab" * 2, "0123456789abcdef" * 4
REGION, BUCKET = "us-east-1", "bench"

CONFIG = """
metadata_dir = "{data}/meta"
data_dir = "{data}/data"
db_engine = "sqlite"
replication_factor = 1
compression_level = "none"
rpc_bind_addr = "127.0.0.1:{port}"
rpc_secret = "{SECRET}"
[s3_api]
s3_region = "{REGION}"
api_bind_addr = "{socket}"
root_domain = ".s3.localhost"
"""


def program(folder):
    """garage itself: what GARAGE names, or is installed, or is compiled here at the first use, in a quarter of an hour of one core."""
    if found := os.environ.get("GARAGE") or shutil.which("garage"):
        return found
    root = folder / "program"
    if not (root / "bin/garage").exists():
        print("compiling garage", flush=True)
        command = ["cargo", "install", "--quiet", "--locked", "--root", str(root), "garage@2.5.0", "--no-default-features", "--features", "bundled-libs,sqlite"]
        subprocess.run(command, check=True)
    return root / "bin/garage"


class Garage(Server):
    """On a Unix socket: over TCP each answer waits 40 ms for a delayed acknowledgement."""

    def __init__(self, folder):
        self.data = pathlib.Path(folder).absolute() / "garage"

    def __enter__(self):
        self.data.mkdir(parents=True, exist_ok=True)
        # The name of a socket is short, whatever the folder is.
        self.sockets = tempfile.TemporaryDirectory(prefix="tiledbfs-garage-")
        config = self.data / "garage.toml"
        config.write_text(CONFIG.format(data=self.data, port=free_port(), socket=self.host, SECRET=SECRET, REGION=REGION))
        config.chmod(0o600)
        env = os.environ | {"GARAGE_DEFAULT_ACCESS_KEY": KEY, "GARAGE_DEFAULT_SECRET_KEY": SECRET, "GARAGE_DEFAULT_BUCKET": BUCKET,
                            "RUST_LOG": "warn"}
        self.start([program(self.data), "-c", str(config), "server", "--single-node", "--default-bucket"], env=env)
        end = time.monotonic() + 30
        while not os.path.exists(self.host):
            if self.process.poll() is not None or time.monotonic() > end:
                raise SystemExit(f"garage does not start: {self.log.read_text()}")
            time.sleep(0.1)
        return self

    def __exit__(self, *arguments):
        super().__exit__(*arguments)
        self.sockets.cleanup()

    @property
    def host(self):
        """Its socket."""
        return f"{self.sockets.name}/s3"

    def load(self, path, name=None):
        """The name of a local array or group in the bucket, where it is put unless an earlier run has."""
        name = name or path.name
        done = self.data / f"{name}.done"
        if not done.exists():
            print(f"loading {name}", flush=True)
            # Without delays.
            with Proxy(self.host) as proxy:
                remote = f":s3,provider=Other,env_auth,no_check_bucket,endpoint='{proxy.url}',region={REGION}:{BUCKET}/{name}"
                command = ["rclone", "copy", "--config", "", "--transfers", "16", "--checkers", "16", "--s3-no-head", "--s3-upload-cutoff", "1G",
                           str(path), remote]
                subprocess.run(command, env=self.env(proxy), check=True)
            done.touch()
        return name

    def env(self, proxy):
        """The environment to read it with, through a proxy."""
        return clean_environment() | {"AWS_ENDPOINT_URL": proxy.url, "AWS_REGION": REGION, "AWS_ACCESS_KEY_ID": KEY, "AWS_SECRET_ACCESS_KEY": SECRET}

    def tiledb(self, proxy):
        """The configuration of TileDB-Py to read it with, through a proxy."""
        return {
            "vfs.s3.endpoint_override": proxy.host, "vfs.s3.scheme": "http", "vfs.s3.use_virtual_addressing": "false", "vfs.s3.region": REGION,
            "vfs.s3.aws_access_key_id": KEY, "vfs.s3.aws_secret_access_key": SECRET,
        }
