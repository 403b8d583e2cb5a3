"""The configurations of docs/serve.md, run by nginx and Caddy: `tiledbfs serve` behind them shows what it shows by itself.

A proxy that is not installed is told of and not run. The last line is `N passed, N failed`.
"""

import contextlib
import json
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from urllib.parse import urlsplit

from mount import ROOT
from plain_tools import Checks
from serve import SAMPLE, Client, serving

HOST = "data.example.org"


def documented(language, after):
    """The first block of code after a line in the documentation."""
    text = (ROOT / "docs/serve.md").read_text().split(f"\n{after}:\n", 1)[1]
    return re.search(rf"```{language}\n(.*?)```", text, re.DOTALL)[1]


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as listening:
        return listening.getsockname()[1]


def nginx(folder, port, backend):
    """The command that runs nginx at `port`."""
    location = documented("nginx", "nginx").replace("127.0.0.1:8470", backend)
    places = "".join(f"{kind}_temp_path {folder}/{kind};" for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
    Path(folder, "nginx.conf").write_text(
        f"daemon off; pid {folder}/pid; error_log {folder}/error.log; events {{}}\n"
        f"http {{ access_log off; {places} server {{ listen 127.0.0.1:{port}; {location} }} }}\n")
    return ["nginx", "-p", folder, "-c", f"{folder}/nginx.conf", "-e", f"{folder}/error.log"]


def caddy(folder, port, backend):
    """The command that runs Caddy at `port`, without certificates."""
    site = documented("", "Caddy").replace("127.0.0.1:8470", backend).replace(HOST, f"http://{HOST}:{port}")
    Path(folder, "Caddyfile").write_text(f"{{\nadmin off\n}}\n{site}")
    return ["caddy", "run", "--adapter", "caddyfile", "--config", f"{folder}/Caddyfile"]


@contextlib.contextmanager
def running(command, port):
    """Runs a proxy until it is not needed any more."""
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as proxy:
        try:
            for _ in range(100):
                with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)):
                    break
                time.sleep(0.1)
            yield f"http://127.0.0.1:{port}/"
        finally:
            proxy.terminate()


def compare(checks, name, direct, through):
    """The same answers with and without the proxy."""
    column = "/arrays/weather/data/columns/temperature/data.bin"
    for method, path, headers in [
        ("GET", "/arrays/weather/", {}),
        ("GET", "/arrays/weather/?json", {}),
        ("GET", "/arrays/weather/data/?at=2025", {}),
        ("GET", "/arrays/weather", {}),
        ("GET", "/arrays/nothing", {}),
        ("GET", "/arrays/a//b", {}),
        ("GET", "/arrays/weather/data/subarray/1..9%2C0..2/view.json", {}),
        ("GET", column, {}),
        ("GET", column, {"Range": "bytes=5-9"}),
        ("GET", column, {"Range": "bytes=-5"}),
        ("GET", column, {"Range": "bytes=9999999-"}),
        ("HEAD", column, {}),
        ("PROPFIND", "/arrays/weather", {"Depth": "1"}),
        ("OPTIONS", "/arrays/", {}),
    ]:
        answers = []
        for client in (direct, through):
            status, got, body = client.ask(method, path, Host=HOST, **headers)
            location = got["Location"] and urlsplit(got["Location"]).path
            kept = [got[field] for field in ("ETag", "Last-Modified", "Content-Type", "Content-Range", "DAV", "Allow")]
            answers.append((status, location, kept, body))
        checks.equal(f"{name}: {method} {path} {headers}", answers[1], answers[0])
    tag = direct.ask("HEAD", column, Host=HOST)[1]["ETag"]
    checks.equal(f"{name}: nothing has changed", through.ask("GET", column, Host=HOST, If_None_Match=tag)[0], 304)
    listed = json.loads(through.ask("GET", "/arrays/weather/data/?json", Host=HOST)[2])["entries"]
    checks.equal(f"{name}: a listing", any(entry["name"] == "table.csv" for entry in listed), True)


def main():
    checks = Checks()
    options = ["--listen", "127.0.0.1:0", "--no-auth", "--host", HOST, "--prefix", "/arrays"]
    with serving(SAMPLE, *options) as ([url], _):
        for configure in (nginx, caddy):
            name = configure.__name__
            if not shutil.which(name):
                print(f"{name}: not run, because it is not installed")
                continue
            port = free_port()
            with tempfile.TemporaryDirectory() as folder:
                command = configure(folder, port, urlsplit(url).netloc)
                with running(command, port) as through:
                    compare(checks, name, Client(url), Client(through))
    print(f"{checks.passed} passed, {checks.failed} failed")
    return checks.failed > 0


if __name__ == "__main__":
    sys.exit(main())
