"""`tiledbfs serve` against a mount of the same array, and against nginx with the same bytes as plain files.

    TILEDBFS_BIN=target/release/tiledbfs .venv/bin/python benches/serve.py [--rounds N] [--size MIB]

Needs curl, nginx and ab (Debian's apache2-utils). In each round all sides are measured in turn; the server
and the mount are new, so that they decode; the files of the array and those of nginx are in the page cache.
The exit code is 1 if a goal was missed.
"""

import argparse
import contextlib
import http.client
import pathlib
import re
import resource
import select
import socket
import subprocess
import sys
import tempfile
import time
from urllib.parse import urlsplit

import arrays
from bench import MIB, Bench, cat, median, seconds, timed, warm

COLUMN, SCHEMA = "data/columns/a/data.bin", "schema.json"
CLIENTS, AB_SECONDS, IDLE = 16, 3, 1000


@contextlib.contextmanager
def served(bench, source):
    """A new server. Yields its URL and the process."""
    command = [bench.program, "serve", str(source), "--listen", "127.0.0.1:0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        try:
            if not select.select([server.stdout], [], [], 30)[0]:
                raise RuntimeError("the server does not start")
            yield server.stdout.readline().strip(), server
        finally:
            server.terminate()


@contextlib.contextmanager
def nginx(folder):
    """nginx as Debian configures it, with the files of a directory. Yields its URL."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
    kinds = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    places = "".join(f"{kind}_temp_path {folder}/{kind};" for kind in kinds)
    config = pathlib.Path(folder, "nginx.conf")
    config.write_text(
        f"daemon off; worker_processes auto; pid {folder}/pid; error_log {folder}/error.log;\n"
        "events { worker_connections 768; }\n"
        f"http {{ access_log off; sendfile on; tcp_nopush on; {places}\n"
        f"server {{ listen 127.0.0.1:{port}; root {folder}/files; }} }}\n")
    with subprocess.Popen(["nginx", "-p", folder, "-c", config, "-e", f"{folder}/error.log"]) as server:
        try:
            end = time.monotonic() + 10
            while time.monotonic() < end:
                with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)):
                    break
                time.sleep(0.05)
            yield f"http://127.0.0.1:{port}/"
        finally:
            server.terminate()


def fetched(url, wanted):
    """Seconds that curl takes for a file of `wanted` bytes."""
    took, shown = timed(["curl", "-sgf", "-o", "/dev/null", "-w", "%{size_download}", url])
    if int(shown) != wanted:
        raise RuntimeError(f"{url}: {shown} bytes of {wanted}")
    return took


def rate(url):
    """Requests that are answered in a second."""
    _, shown = timed(["ab", "-q", "-k", "-c", CLIENTS, "-t", AB_SECONDS, "-n", 1_000_000, url])
    text = shown.decode()
    # Answers of other lengths would be counted here, too.
    if not re.search(r"Failed requests: +0\n", text) or "Non-2xx" in text:
        raise RuntimeError(text)
    return float(re.search(r"Requests per second: +([\d.]+)", text)[1])


def first_byte(url, path, count=200):
    """Seconds to the first byte of an answer on an open connection, of a file that was read before."""
    connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=60)
    took = []
    for number in range(count + 1):
        start = time.perf_counter()
        connection.request("GET", "/" + path)
        answer = connection.getresponse()
        answer.read(1)
        if number:
            took.append(time.perf_counter() - start)
        answer.read()
    connection.close()
    return median(took)


def resident(server):
    status = pathlib.Path(f"/proc/{server.pid}/status").read_text()
    return int(re.search(r"VmRSS:\s+(\d+) kB", status)[1]) << 10


def idle(url, server):
    """Bytes by which the server grows for connections that have had an answer and are kept."""
    # Its threads are at work before it is measured.
    rate(url + SCHEMA)
    before = resident(server)
    with contextlib.ExitStack() as stack:
        address = ("127.0.0.1", urlsplit(url).port)
        kept = [stack.enter_context(socket.create_connection(address)) for _ in range(IDLE)]
        for connection in kept:
            connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
        if not all(connection.recv(4096).startswith(b"HTTP/1.1 200") for connection in kept):
            raise RuntimeError("a connection was refused")
        return resident(server) - before


def measure(bench, source, folder):
    """All rounds."""
    found = {}

    def note(name, value):
        found.setdefault(name, []).append(value)

    size = (pathlib.Path(folder) / "files/column").stat().st_size
    with nginx(folder) as plain:
        for _ in range(bench.rounds):
            with served(bench, source) as (url, _):
                note("curl", fetched(url + COLUMN, size))
                note("again", fetched(url + COLUMN, size))
                note("first", first_byte(url, SCHEMA))
                note("first of a column", first_byte(url, COLUMN, 10))
                note("rate", rate(url + SCHEMA))
            with bench.mounted(source) as (mountpoint, _):
                note("cat", cat(mountpoint / COLUMN)[0])
            note("nginx", fetched(plain + "column", size))
            note("nginx rate", rate(plain + SCHEMA))
        with served(bench, source) as (url, server):
            note("idle", idle(url, server))
    return found


def report(bench, found):
    def ratio(ours, theirs):
        return median([one / other for one, other in zip(found[ours], found[theirs], strict=True)])

    def both(ours, theirs):
        return f"{seconds(median(found[ours]))} / {seconds(median(found[theirs]))}"

    mib = bench.size // MIB
    what = f"a column of {mib} MiB by curl, against cat of a mount"
    bench.row(what, both("curl", "cat"), ratio("curl", "cat"), 1.0)
    bench.row("  against curl from nginx, decoded", both("curl", "nginx"), ratio("curl", "nginx"), 3)
    bench.row("  once more, against curl from nginx", both("again", "nginx"), ratio("again", "nginx"))
    rates = f"{median(found['rate']):.0f} / {median(found['nginx rate']):.0f}"
    what = f"schema.json a second by {CLIENTS} clients, against nginx"
    bench.row(what, rates, ratio("rate", "nginx rate"), 0.25, at_least=True)
    names = {"first byte of schema.json (ms)": "first", "  of the column (ms)": "first of a column"}
    for what, name in names.items():
        first = median(found[name])
        bench.row(what, seconds(first), first * 1000, 5)
    [grown] = found["idle"]
    bench.row(f"{IDLE} idle connections (MiB)", f"{grown / MIB:.1f} MiB", grown / MIB, 20)


def main():
    layout = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=layout)
    kept = "where the array is kept from run to run"
    parser.add_argument("--arrays", default="target/bench-arrays", metavar="DIR", help=kept)
    parser.add_argument("--rounds", type=int, default=5, metavar="N")
    parser.add_argument("--size", type=int, default=64, metavar="MIB", help="of the column")
    options = parser.parse_args()
    resource.setrlimit(resource.RLIMIT_NOFILE, (4096, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
    bench = Bench(options)
    source = arrays.columns(options.arrays, "zstd", bench.size)
    warm(source)
    with tempfile.TemporaryDirectory(prefix="tiledbfs-bench-") as folder:
        files = pathlib.Path(folder, "files")
        files.mkdir()
        with bench.mounted(source) as (mountpoint, _):
            (files / "column").write_bytes((mountpoint / COLUMN).read_bytes())
            (files / SCHEMA).write_bytes((mountpoint / SCHEMA).read_bytes())
        # The processes of nginx that answer are another user's.
        for path in (pathlib.Path(folder), files):
            path.chmod(0o755)
        report(bench, measure(bench, source, folder))
    sys.exit(any(verdict == "MISSED" for *_, verdict in bench.rows))


if __name__ == "__main__":
    main()
