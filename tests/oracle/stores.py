"""Stores on loopback for the tests: moto (S3, and Google Cloud Storage on a public bucket), azurite, and rclone or nginx for WebDAV.

    with Moto() as moto:
        moto.load("bucket", "prefix", directory)
        with mounted("s3://bucket/prefix", env=moto.env()) as point: ...

Each is a process of its own on a free port, ended with the block.
"""

import contextlib
import datetime
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

KEYS = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "hidden-secret"}


class Wrong(Exception):
    """A failed expectation."""


def expect(condition, what):
    """Raises `Wrong` unless the condition holds."""
    if not condition:
        raise Wrong(what)


def clean_environment():
    """The environment without settings of stores, and without the machine's metadata service."""
    prefixes = ("AWS_", "GOOGLE_", "AZURE_")
    env = {name: value for name, value in os.environ.items() if not name.startswith(prefixes) and not name.lower().endswith("_proxy")}
    return env | {"AWS_EC2_METADATA_DISABLED": "true", "AWS_SHARED_CREDENTIALS_FILE": "/nonexistent", "AWS_CONFIG_FILE": "/nonexistent"}


def free_port():
    """A port without a listener."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def wait_for(port, process, log=None, seconds=60):
    """Waits for a listener."""
    end = time.monotonic() + seconds
    while True:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
            return
        if process.poll() is not None or time.monotonic() > end:
            text = Path(log).read_text(errors="replace") if log else ""
            raise SystemExit(f"{process.args}: does not listen\n{text}")
        time.sleep(0.05)


class Server:
    """A process that ends with the block."""

    process = None

    def start(self, command, **options):
        """Starts it, without a terminal."""
        self.folder = tempfile.TemporaryDirectory(prefix="tiledbfs-store-")
        self.log = Path(self.folder.name, "log")
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen(command, **{"stdin": subprocess.DEVNULL, "stdout": log, "stderr": log, "cwd": self.folder.name, **options})
        return self

    def __exit__(self, *_):
        self.process.terminate()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.folder.cleanup()

    @property
    def host(self):
        """Its address."""
        return f"127.0.0.1:{self.port}"


class Moto(Server):
    """moto in a process of its own, which runs this module: files go straight to its memory."""

    def __enter__(self):
        self.start([sys.executable, __file__, "--serve-moto"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.port = json.loads(self.process.stdout.readline())["port"]
        self.asking = threading.Lock()
        return self

    def ask(self, **command):
        """Sends a command to the process."""
        with self.asking:
            self.process.stdin.write(json.dumps(command) + "\n")
            self.process.stdin.flush()
            answer = self.process.stdout.readline()
        if not answer:
            raise SystemExit(f"moto ended: {self.log.read_text()}")
        return json.loads(answer)

    def bucket(self, name, public=False):
        """Makes a bucket, if it is not there."""
        self.ask(bucket=name, public=public)

    def load(self, bucket, prefix, directory, public=False):
        """Puts all files of a directory below a prefix of a bucket."""
        self.bucket(bucket, public)
        return self.ask(load=[bucket, prefix, os.path.abspath(directory)])["files"]

    def put(self, bucket, key, data):
        """Puts an object."""
        self.ask(put=[bucket, key, data.hex()])

    def delete(self, bucket, key):
        """Deletes an object."""
        self.ask(delete=[bucket, key])

    def date(self, bucket, prefix, seconds):
        """Sets the modification time of all objects below a prefix, in seconds since 1970."""
        self.ask(date=[bucket, prefix, seconds])

    def keys(self, bucket, prefix=""):
        """The keys below a prefix."""
        return self.ask(keys=[bucket, prefix])["keys"]

    def env(self, host=None, **more):
        """The environment for readers, through a proxy at `host` if given."""
        return clean_environment() | KEYS | {"AWS_ENDPOINT_URL": f"http://{host or self.host}", "AWS_REGION": "us-east-1"} | more

    def tiledb(self, host=None):
        """The configuration of TileDB-Py for reading and writing."""
        return {
            "vfs.s3.endpoint_override": host or self.host, "vfs.s3.scheme": "http", "vfs.s3.use_virtual_addressing": "false",
            "vfs.s3.region": "us-east-1", "vfs.s3.aws_access_key_id": "test", "vfs.s3.aws_secret_access_key": "hidden-secret",
        }


def serve_moto():
    """The process of [`Moto`]: one command per line."""
    from moto.s3.models import s3_backends
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    print(json.dumps({"port": server.get_host_and_port()[1]}), flush=True)
    backend = s3_backends["123456789012"]["aws"]

    def do(command):
        if "bucket" in command:
            name = command["bucket"]
            if name not in backend.buckets:
                backend.create_bucket(name, "us-east-1")
            if command["public"]:
                statement = {"Effect": "Allow", "Principal": "*", "Action": "s3:*", "Resource": [f"arn:aws:s3:::{name}", f"arn:aws:s3:::{name}/*"]}
                backend.put_bucket_policy(name, json.dumps({"Version": "2012-10-17", "Statement": [statement]}).encode())
        elif "load" in command:
            bucket, prefix, directory = command["load"]
            files = 0
            for path in sorted(Path(directory).rglob("*")):
                if path.is_file():
                    key = f"{prefix}/{path.relative_to(directory)}".lstrip("/")
                    backend.put_object(bucket, key, path.read_bytes())
                    files += 1
            return {"files": files}
        elif "put" in command:
            bucket, key, data = command["put"]
            backend.put_object(bucket, key, bytes.fromhex(data))
        elif "delete" in command:
            backend.delete_object(*command["delete"])
        elif "date" in command:
            bucket, prefix, seconds = command["date"]
            for key, value in backend.buckets[bucket].keys.items():
                if key.startswith(prefix):
                    value.last_modified = datetime.datetime.fromtimestamp(seconds, datetime.timezone.utc).replace(tzinfo=None)
        elif "keys" in command:
            bucket, prefix = command["keys"]
            return {"keys": sorted(key for key in backend.buckets[bucket].keys if key.startswith(prefix))}
        return {}

    for line in sys.stdin:
        print(json.dumps(do(json.loads(line))), flush=True)
    server.stop()


class Azurite(Server):
    """azurite, installed by npm in a folder."""

    # A public key from azurite's documentation.
    ACCOUNT = "devstoreaccount1"
    KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="

    def __init__(self, program):
        self.program = program

    def __enter__(self):
        self.port = free_port()
        self.start([self.program, "--silent", "--blobHost", "127.0.0.1", "--blobPort", str(self.port), "--skipApiVersionCheck",
                    "--disableTelemetry", "--inMemoryPersistence"])
        wait_for(self.port, self.process, self.log)
        return self

    def env(self):
        """The environment for readers."""
        return clean_environment() | {"AZURE_STORAGE_USE_EMULATOR": "true", "AZURITE_BLOB_STORAGE_URL": f"http://{self.host}"}

    def tiledb(self):
        """The configuration of TileDB-Py for writing."""
        return {"vfs.azure.storage_account_name": self.ACCOUNT, "vfs.azure.storage_account_key": self.KEY,
                "vfs.azure.blob_endpoint": f"http://{self.host}/{self.ACCOUNT}"}


class Rclone(Server):
    """A directory served by WebDAV."""

    def __init__(self, directory):
        self.directory = directory

    def __enter__(self):
        self.port = free_port()
        self.start([shutil.which("rclone"), "serve", "webdav", "--addr", self.host, "--read-only", "--dir-cache-time", "0s", str(self.directory)])
        wait_for(self.port, self.process, self.log)
        return self


if __name__ == "__main__" and sys.argv[1:] == ["--serve-moto"]:
    serve_moto()
