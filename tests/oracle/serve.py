"""`tiledbfs serve` beside a mount of the same source: every byte, size and time; the protocol; attacks; programs that read URLs.

Programs that are not installed are told of and not run. The last line is `N passed, N failed`.
"""

import contextlib
import http.client
import json
import os
import re
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from email.parser import BytesParser
from pathlib import Path
from urllib.parse import quote, urlsplit

import numpy as np
import tiledb

from mount import ROOT, binary, mounted
from plain_tools import Checks

SAMPLE = ROOT / "tests/data/sample"
SOURCES = [SAMPLE, ROOT / "tests/data/corners"]
"""What is walked."""
PAST = ["weather/at/2025", "weather/at/latest", "weather/data/subarray/1..9,0..2", "weather/fragments/latest"]
"""Directories of the sample that are not listed."""
HOST = b"Host: localhost\r\n"


@contextlib.contextmanager
def serving(source, *options, ready=True, env=None):
    """Serves `source`. Yields the URLs and the process, which is stopped at the end and has to end well."""
    command = [binary(), "serve", str(source), *options]
    server = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env)
    try:
        urls = []
        wanted = max(1, options.count("--listen"))
        while ready and len(urls) < wanted:
            if not select.select([server.stdout], [], [], 30)[0]:
                raise SystemExit("the server does not start")
            line = server.stdout.readline()
            if not line:
                raise SystemExit(f"{' '.join(command)}: {server.stderr.read()}")
            urls.append(line.strip())
        yield urls, server
    finally:
        if server.poll() is None:
            server.send_signal(signal.SIGTERM)
        try:
            server.wait(20)
        except subprocess.TimeoutExpired:
            server.kill()
        server.stdout.close()
        server.stderr.close()


class Client:
    """A connection that is kept."""

    def __init__(self, url):
        self.host = urlsplit(url).netloc
        self.connection = http.client.HTTPConnection(self.host, timeout=60)

    def ask(self, method, path, body=None, **headers):
        """Status, headers and body of an answer. Headers are given with _ for -."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        try:
            self.connection.request(method, path, body=body, headers=named)
        except (BrokenPipeError, ConnectionResetError):
            if body is None:
                raise
            # The server answers and closes before a body that it refuses has come.
        answer = self.connection.getresponse()
        return answer.status, answer.headers, answer.read()


def walk(checks, point, client, top):
    """Compares all below `top`, a path in both trees. Returns the files in it."""
    files, differing, waiting = [], [], [top]
    while waiting:
        directory = waiting.pop()
        path = quote("/" + directory + "/" if directory else "/")
        status, _, body = client.ask("GET", path + "?json")
        if status != 200:
            differing.append(f"{path}: {status}")
            continue
        entries = {entry["name"]: entry for entry in json.loads(body)["entries"]}
        names = {name for name in os.listdir(point / directory) if directory or name != ".tiledbfs"}
        if names != set(entries):
            differing.append(f"{path}: {names ^ set(entries)}")
        for name in sorted(names & set(entries)):
            entry, below = entries[name], f"{directory}/{name}".lstrip("/")
            stat = os.stat(point / below)
            if entry["mtime"] != stat.st_mtime_ns // 1_000_000:
                differing.append(f"{below}: time {entry['mtime']}")
            if entry["type"] == "directory":
                waiting.append(below)
                continue
            files.append(below)
            status, headers, body = client.ask("GET", path + entry["href"])
            try:
                expected = (point / below).read_bytes()
            except OSError:
                expected = None
            if expected is None:
                if status < 400:
                    differing.append(f"{below}: {status}, and the mount fails")
            elif (status, len(body), entry["size"]) != (200, stat.st_size, stat.st_size) or body != expected:
                differing.append(f"{below}: {status}, {len(body)} bytes of {stat.st_size}")
            elif headers["ETag"] != entry["etag"] or int(headers["Content-Length"]) != stat.st_size:
                differing.append(f"{below}: {headers['ETag']} and {entry['etag']}")
    checks.equal(f"{top or '/'}: {len(files)} files as in the mount", differing[:5], [])
    return files


def raw(url, request, wait=1.0):
    """All that the server sends to these bytes until it closes, or is silent; and whether it closed."""
    host, port = urlsplit(url).netloc.rsplit(":", 1)
    with socket.create_connection((host, int(port)), timeout=wait) as connection:
        connection.sendall(request)
        received = b""
        while True:
            try:
                more = connection.recv(65536)
            except TimeoutError:
                return received, False
            except ConnectionResetError:
                return received, True
            if not more:
                return received, True
            received += more


def protocol(checks, client, file):
    """Ranges, conditions and methods on one file of the sample."""
    _, headers, whole = client.ask("GET", file)
    tag, modified, length = headers["ETag"], headers["Last-Modified"], len(whole)
    checks.equal("a strong tag", bool(re.fullmatch(r'"[^"]+"', tag)), True)
    for header, status, expected in [
        ("bytes=0-0", 206, whole[:1]),
        ("bytes=-5", 206, whole[-5:]),
        (f"bytes=5-{'9' * 60}", 206, whole[5:]),
        ("bytes=3-9,0-4", 206, whole[:10]),
        ("bytes=9-3", 200, whole),
        ("items=0-1", 200, whole),
        (f"bytes={length}-", 416, None),
        ("bytes=" + ",".join(f"{2 * n}-{2 * n}" for n in range(65)), 416, None),
    ]:
        got, headers, body = client.ask("GET", file, Range=header)
        checks.equal(f"range {header[:30]}", (got, body if expected is not None else headers["Content-Range"]),
                     (status, expected if expected is not None else f"bytes */{length}"))
    _, headers, body = client.ask("GET", file, Range="bytes=0-3,10-12")
    parts = BytesParser().parsebytes(b"Content-Type: " + headers["Content-Type"].encode() + b"\r\n\r\n" + body).get_payload()
    checks.equal("several ranges", [(part["Content-Range"], part.get_payload(decode=True)) for part in parts],
                 [(f"bytes 0-3/{length}", whole[:4]), (f"bytes 10-12/{length}", whole[10:13])])
    checks.equal("their length", int(headers["Content-Length"]), len(body))
    for headers, status in [
        ({"If_None_Match": tag}, 304),
        ({"If_None_Match": f"W/{tag}"}, 304),
        ({"If_None_Match": '"other"'}, 200),
        ({"If_Match": '"other"'}, 412),
        ({"If_Match": tag, "If_Unmodified_Since": "Thu, 01 Jan 1970 00:00:00 GMT"}, 200),
        ({"If_Modified_Since": modified}, 304),
        ({"If_Modified_Since": "yesterday"}, 200),
        ({"Range": "bytes=0-0", "If_Range": tag}, 206),
        ({"Range": "bytes=0-0", "If_Range": modified}, 206),
        ({"Range": "bytes=0-0", "If_Range": f"W/{tag}"}, 200),
        ({"Range": "bytes=0-0", "If_None_Match": tag}, 304),
    ]:
        checks.equal(f"conditions {headers}", client.ask("GET", file, **headers)[0], status)
    status, headers, body = client.ask("HEAD", file, Range="bytes=0-0")
    checks.equal("HEAD", (status, headers["ETag"], int(headers["Content-Length"]), body), (200, tag, length, b""))
    for path, status in [
        (file + "/", 404), ("/a//b", 404), ("/nothing", 404), ("/%2e%2e/x", 400), ("/a/../b", 400), ("/%00", 400), ("/%4", 400),
        ("/.tiledbfs/", 404), ("/weather%2Fschema.json", 404), ("/weather", 301), ("/weather/at/nonsense/", 404),
    ]:
        checks.equal(f"GET {path}", client.ask("GET", path)[0], status)
    checks.equal("the query of a redirect", client.ask("GET", "/weather?json=names")[1]["Location"], "/weather/?json=names")
    status, headers, body = client.ask("OPTIONS", "/")
    checks.equal("OPTIONS", (status, headers["DAV"], headers["Content-Length"], body), (200, "1", "0", b""))
    status, headers, _ = client.ask("PUT", file, body=b"x")
    checks.equal("PUT", (status, headers["Allow"]), (405, "GET, HEAD, OPTIONS, PROPFIND"))
    checks.equal("PROPFIND without depth", client.ask("PROPFIND", "/")[0], 403)
    status, _, body = client.ask("PROPFIND", "/weather", Depth="1")
    checks.equal("PROPFIND", (status, b"<D:href>/weather/schema.json</D:href>" in body), (207, True))


def unwanted(checks, url):
    """The answer to a body that nobody asked for is seen by a client that sends all of it first."""
    host, port = urlsplit(url).netloc.rsplit(":", 1)
    for length, kept in ((13_000, True), (5 << 20, False)):
        with socket.create_connection((host, int(port)), timeout=5) as connection:
            connection.sendall(b"PUT /new HTTP/1.1\r\n" + HOST + b"Content-Length: %d\r\n\r\n" % length)
            time.sleep(0.1)
            with contextlib.suppress(OSError):
                connection.sendall(bytes(length))
            try:
                received = connection.recv(65536)
                checks.equal(f"PUT of {length} bytes", (received[:12], b"connection: close" in received.lower()), (b"HTTP/1.1 405", not kept))
            except ConnectionResetError:
                # A long body is not received.
                checks.equal(f"PUT of {length} bytes: a reset", kept, False)


def attacks(checks, url):
    """Requests that only attackers make, and what a server must not take for one request."""
    for name, request, status, closes in [
        ("both lengths", b"GET / HTTP/1.1\r\n" + HOST + b"Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\nabc", 400, True),
        ("both lengths, turned round", b"GET / HTTP/1.1\r\n" + HOST + b"Transfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n0\r\n\r\n", 400, True),
        ("two lengths", b"GET / HTTP/1.1\r\n" + HOST + b"Content-Length: 0\r\nContent-Length: 0\r\n\r\n", 400, True),
        ("a folded line", b"GET / HTTP/1.1\r\n" + HOST + b"X: a\r\n b\r\n\r\n", 400, True),
        ("no host", b"GET / HTTP/1.1\r\n\r\n", 400, None),
        ("two hosts", b"GET / HTTP/1.1\r\n" + HOST + HOST + b"\r\n", 400, None),
        ("another host", b"GET / HTTP/1.1\r\nHost: evil.example\r\n\r\n", 421, None),
        ("another host in the target", b"GET http://evil.example/ HTTP/1.1\r\n" + HOST + b"\r\n", 421, None),
        ("a big head", b"GET / HTTP/1.1\r\n" + HOST + b"X: " + b"a" * 40_000 + b"\r\n\r\n", 431, True),
        ("many fields", b"GET / HTTP/1.1\r\n" + HOST + b"".join(b"X%d: a\r\n" % n for n in range(120)) + b"\r\n", 431, True),
        ("a long target", b"GET /" + b"a" * 9000 + b" HTTP/1.1\r\n" + HOST + b"\r\n", 414, None),
        ("a very long target", b"GET /" + b"a" * 100_000 + b" HTTP/1.1\r\n" + HOST + b"\r\n", 414, True),
        ("a long body", b"PROPFIND / HTTP/1.1\r\nDepth: 0\r\nContent-Length: 70000\r\n" + HOST + b"\r\n" + b"a" * 70_000, 413, None),
        ("entities", b"PROPFIND / HTTP/1.1\r\nDepth: 0\r\nContent-Length: 58\r\n" + HOST
         + b'\r\n<!DOCTYPE a [<!ENTITY b "c">]><propfind xmlns="DAV:"/>    ', 400, None),
        ("no HTTP", b"\x16\x03\x01\x00\r\n\r\n", 400, True),
    ]:
        received, closed = raw(url, request)
        first = received.split(b"\r\n")[0].decode("latin-1").split(" ")
        checks.equal(name, (first[1:2], closed if closes else closes), ([str(status)], closes))
    # Whoever speaks HTTP/1.0 takes an answer without a length for whole wherever it ends.
    for target in (b"/", b"/?json"):
        received, _ = raw(url, b"GET " + target + b" HTTP/1.0\r\n" + HOST + b"\r\n")
        head, _, body = received.partition(b"\r\n\r\n")
        length = re.search(rb"(?i)content-length: (\d+)", head)
        checks.equal(f"HTTP/1.0: {target}", length and int(length[1]), len(body))
    received, _ = raw(url, (b"GET /healthz HTTP/1.1\r\n" + HOST + b"\r\n") * 3)
    checks.equal("requests one after the other", received.count(b"HTTP/1.1 200 OK"), 3)


def access(checks):
    """Tokens, names, other users, CORS, options."""
    with tempfile.TemporaryDirectory() as folder:
        tokens = Path(folder, "tokens")
        tokens.write_text("ann:abcdefghijklmnopqrst\n")
        tokens.chmod(0o600)
        log = Path(folder, "log")
        options = ["--listen", "127.0.0.1:0", "--token-file", str(tokens), "--access-log", str(log), "--cors", "https://a.example"]
        with serving(SAMPLE, *options) as ([url], server):
            client = Client(url)
            status, headers, _ = client.ask("GET", "/?secret", Origin="https://a.example")
            checks.equal("without a token", (status, len(headers.get_all("WWW-Authenticate"))), (401, 2))
            checks.equal("its answer may be read", headers["Access-Control-Allow-Origin"], "https://a.example")
            checks.equal("a token", client.ask("GET", "/", Authorization="Bearer abcdefghijklmnopqrst")[0], 200)
            checks.equal("another", client.ask("GET", "/", Authorization="Bearer abcdefghijklmnopqrsu")[0], 401)
            checks.equal("any host", client.ask("GET", "/", Host="evil", Authorization="Bearer abcdefghijklmnopqrst")[0], 200)
            checks.equal("healthz", client.ask("GET", "/healthz")[0], 200)
            asking = {"Access_Control_Request_Method": "GET"}
            checks.equal("a preflight", client.ask("OPTIONS", "/", Origin="https://a.example", **asking)[0], 204)
            checks.equal("another's", client.ask("OPTIONS", "/", Origin="https://b.example", **asking)[0], 403)
            tokens.write_text("zyxwvutsrqponmlkjihgf\n")
            server.send_signal(signal.SIGHUP)
            time.sleep(0.5)
            checks.equal("tokens are read anew", client.ask("GET", "/", Authorization="Bearer zyxwvutsrqponmlkjihgf")[0], 200)
            raw(url, b"no request\r\n\r\n")
            raw(url, b"GET / HTTP/1.1\r\nHost: h\r\n" + b"a: b\r\n" * 1000 + b"\r\n")
        lines = log.read_text()
        checks.equal("the log", ('ann [' in lines, "secret" in lines, "abcdef" in lines), (True, False, False))
        checks.equal("the log of what is no request", [f'"-" {status} 0 "-" "-"' in lines for status in (400, 431)], [True, True])
        tokens.chmod(0o644)
        for refused, code in ((["--token-file", str(tokens)], 1), (["--listen", "0.0.0.0:0"], 1), (["--cors", "a.example"], 2), (["--cors", "https://a.example/b"], 2)):
            done = subprocess.run([binary(), "serve", str(SAMPLE), *refused], capture_output=True, timeout=60)
            checks.equal(f"{refused[0]} is refused", done.returncode, code)
        path = Path(folder, "s")
        with serving(SAMPLE, "--listen", f"unix:{path}", "--prefix", "/p") as ([url], _):
            shown = subprocess.run(["curl", "-sg", "--unix-socket", path, "http://localhost/p/weather/schema.json"], capture_output=True)
            checks.equal("over a socket", json.loads(shown.stdout)["array_type"], "dense")
        checks.equal("the socket is removed", path.exists(), False)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        number, url = listening.fileno(), f"http://127.0.0.1:{listening.getsockname()[1]}/"
        handed = f"exec 3<&0; LISTEN_PID=$$ LISTEN_FDS=1 exec {binary()} serve {SAMPLE}"
        for command in ([binary(), "serve", str(SAMPLE), "--listen", f"fd:{number}"], ["sh", "-c", handed]):
            server = subprocess.Popen(command, pass_fds=[number], stdin=listening, stdout=subprocess.PIPE, text=True)
            checks.equal("a socket that is handed over", server.stdout.readline().strip(), url)
            checks.equal("what answers there", Client(url).ask("GET", "/healthz")[0], 200)
            server.send_signal(signal.SIGTERM)
            checks.equal("it ends", server.wait(15), 0)
            server.stdout.close()
    if os.geteuid() == 0:
        with serving(SAMPLE, "--listen", "127.0.0.1:0") as ([url], _):
            as_nobody = {"user": 65534, "group": 65534, "extra_groups": []}
            other = subprocess.run(["curl", "-sg", "-o", "/dev/null", "-w", "%{http_code}", url], capture_output=True, text=True, **as_nobody)
            checks.equal("another user", other.stdout, "403")


def stored(checks):
    """The files as they are stored, from which another mount computes the same."""
    with serving(SAMPLE, "--listen", "127.0.0.1:0", "--stored") as ([url], _):
        top = "/.tiledbfs/stored/"
        client = Client(url)
        for path in (top + "nothing", "/.tiledbfs/", "/.tiledbfs/stats.json"):
            checks.equal(path, client.ask("GET", path)[0], 404)
        schema = next((SAMPLE / "weather/__schema").iterdir())
        name = schema.relative_to(SAMPLE).as_posix()
        status, headers, body = client.ask("GET", top + name)
        checks.equal("a stored file", (status, body), (200, schema.read_bytes()))
        checks.equal("its tag by HEAD", client.ask("HEAD", top + name)[1]["ETag"], headers["ETag"])
        for path in ("", "weather"):
            shown = subprocess.run([binary(), "ls", url + path], capture_output=True, text=True, timeout=60)
            checks.equal(f"the tree itself is no source: /{path}", (shown.returncode, ".tiledbfs/stored/" in shown.stderr), (1, True))
        with mounted(url + top[1:]) as there, mounted(SAMPLE) as here:
            for name in ("weather/data/table.csv", "weather/schema.json", "lightning/data/table.parquet"):
                checks.equal(f"{name} over HTTP", (there / name).read_bytes() == (here / name).read_bytes(), True)


def nothing_stored(checks):
    """Without --stored there is no such tree, and who asks for it is told."""
    with serving(SAMPLE, "--listen", "127.0.0.1:0") as ([url], _):
        for command in ("ls", "info", "check"):
            shown = subprocess.run([binary(), command, url + ".tiledbfs/stored/"], capture_output=True, text=True, timeout=60)
            checks.equal(f"{command} of what is not shown", (shown.returncode != 0, "--stored" in shown.stderr), (True, True))


def states(checks):
    """Tags are those of states, after a restart too."""
    seen = []
    for _ in range(2):
        with serving(SAMPLE, "--listen", "127.0.0.1:0") as ([url], _):
            listed = json.loads(Client(url).ask("GET", "/weather/data/columns/temperature/?json")[2])
            seen.append([entry["etag"] for entry in listed["entries"]])
    checks.equal("tags after a restart", seen[1], seen[0])


def pins(checks):
    """A state by its name is that state, after other writes too, and not found once vacuum has taken it."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "line")
        domain = tiledb.Domain(tiledb.Dim("x", domain=(0, 99), tile=10, dtype=np.int32))
        tiledb.Array.create(path, tiledb.ArraySchema(domain, [tiledb.Attr("a", dtype=np.int64)]))

        def write(stamp):
            with tiledb.open(path, "w", timestamp=stamp) as array:
                array[:] = np.full(100, stamp)
            return np.full(100, stamp).tobytes()

        write(10)
        known = write(20)
        with serving(folder, "--listen", "127.0.0.1:0") as ([url], _):
            client = Client(url)
            pin = json.loads(client.ask("GET", "/line/data/view.json")[2])["pin"]
            top = f"/line/at/{quote(pin)}/"
            column = top + "data/columns/a/data.bin"
            _, before, _ = client.ask("GET", column)
            newest = "/line/fragments/latest/columns/a/data.bin"
            _, headers, body = client.ask("GET", newest)
            checks.equal("the newest fragment", body, known)
            tag = headers["ETag"]
            latest = write(30)
            time.sleep(1.1)
            status, headers, body = client.ask("GET", column)
            checks.equal("a state by its name", (status, body, headers["ETag"]), (200, known, before["ETag"]))
            status, headers, body = client.ask("GET", newest, If_None_Match=tag)
            checks.equal("the newest fragment after another write", (status, body), (200, latest))
            status, again, _ = client.ask("GET", newest, If_None_Match=headers["ETag"])
            checks.equal("... has another tag, and keeps it", (status, again["ETag"], headers["ETag"] == tag), (304, headers["ETag"], False))
            tiledb.consolidate(path)
            tiledb.vacuum(path)
            time.sleep(1.1)
            status, _, body = client.ask("GET", column)
            checks.equal("... after vacuum", (status, body) == (200, known) or status >= 400, True)
        never = pin[:-1] + ("0" if pin[-1] != "0" else "1")
        with serving(folder, "--listen", "127.0.0.1:0") as ([url], _):
            client = Client(url)
            checks.equal("the array", client.ask("GET", "/line/data/columns/a/data.bin")[2], latest)
            for method, where, headers in [
                ("GET", column, {}),
                ("HEAD", column, {}),
                ("GET", column, {"Range": "bytes=0-9"}),
                ("GET", column, {"If_None_Match": before["ETag"]}),
                ("GET", top, {}),
                ("GET", top + "?json", {}),
                ("GET", top[:-1], {}),
                ("PROPFIND", top, {"Depth": "1"}),
                ("GET", column.replace(quote(pin), quote(never)), {}),
            ]:
                status, _, body = client.ask(method, where, **headers)
                told = folder.encode() in body
                checks.equal(f"a state that is gone: {method} {where} {headers}", (status, told), (410, False))


def load(checks, url, file, whole):
    """Many clients, slow ones, ones that leave."""
    def one(number):
        client = Client(url)
        if number % 10 == 0:
            # Leaves in the middle.
            client.connection.request("GET", file)
            client.connection.close()
            return True
        return client.ask("GET", file)[2] == whole

    with ThreadPoolExecutor(64) as pool:
        good = list(pool.map(one, range(200)))
    checks.equal("200 clients", good.count(True), 200)


def programs(checks, url, point):
    """Programs that read URLs, each against the mount."""
    def run(*command, **options):
        return subprocess.run(command, capture_output=True, timeout=120, **options)

    csv, column = "weather/data/table.csv", "weather/data/columns/temperature/data.bin"
    checks.equal("curl", run("curl", "-sgf", url + csv).stdout, (point / csv).read_bytes())
    with tempfile.TemporaryDirectory() as folder:
        part = Path(folder, "part")
        part.write_bytes((point / csv).read_bytes()[:1000])
        run("curl", "-sgf", "-C", "-", "-o", part, url + csv)
        checks.equal("curl goes on", part.read_bytes(), (point / csv).read_bytes())
        if shutil.which("wget"):
            top = "weather/data/columns/"
            run("wget", "-q", "-r", "-np", "-nH", "-e", "robots=off", "-P", folder, url + top)
            wanted = sorted(path.relative_to(point).as_posix() for path in (point / top).rglob("*") if path.is_file())
            got = [path for path in wanted if Path(folder, path).is_file()]
            same = [path for path in got if Path(folder, path).read_bytes() == (point / path).read_bytes()]
            checks.equal("wget -r", same, wanted)
        if shutil.which("rclone"):
            for kind in (f":webdav,url='{url}',vendor=other:", f":http,url='{url}':"):
                target = Path(folder, kind[1:4])
                done = run("rclone", "--config", "/dev/null", "copy", kind + "weather/data/columns/temperature", target)
                names = sorted(os.listdir(target)) if target.exists() else done.stderr.decode()[-300:]
                checks.equal(f"rclone {kind[1:7]}", names, sorted(os.listdir(point / "weather/data/columns/temperature")))
    import pandas
    import polars

    checks.equal("pandas", pandas.read_csv(url + csv).equals(pandas.read_csv(point / csv)), True)
    parquet = "weather/data/table.parquet"
    checks.equal("polars", polars.read_parquet(url + parquet).equals(polars.read_parquet(point / parquet)), True)
    import rasterio

    image = next((point / "weather/data/raster").glob("*.tif"), None)
    if image:
        name = image.relative_to(point).as_posix()
        with rasterio.open(f"/vsicurl/{url}{name}") as there, rasterio.open(image) as here:
            checks.equal("GDAL /vsicurl", (there.read() == here.read()).all() or there.read().tobytes() == here.read().tobytes(), True)
    checks.equal("bytes of a column", Client(url).ask("GET", "/" + column)[2], (point / column).read_bytes())


def main():
    checks = Checks()
    for source in SOURCES:
        with mounted(source) as point, serving(source, "--listen", "127.0.0.1:0") as ([url], server):
            client = Client(url)
            walk(checks, point, client, "")
            if source == SAMPLE:
                for top in PAST:
                    walk(checks, point, client, top)
                protocol(checks, client, "/weather/schema.json")
                unwanted(checks, url)
                attacks(checks, url)
                programs(checks, url, point)
                csv = "weather/data/table.csv"
                load(checks, url, "/" + csv, (point / csv).read_bytes())
            server.send_signal(signal.SIGTERM)
            checks.equal("it ends well", server.wait(15), 0)
    states(checks)
    pins(checks)
    stored(checks)
    nothing_stored(checks)
    access(checks)
    print(f"{checks.passed} passed, {checks.failed} failed")
    return checks.failed > 0


if __name__ == "__main__":
    sys.exit(main())
