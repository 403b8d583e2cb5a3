"""WebDAV clients on what `tiledbfs serve` shows: requests of the Finder and the Explorer; programs of Debian.

The requests are those on public record: of macOS in the published source of its file system `webdavfs`, of
Windows in logs of other servers and in Microsoft's specifications. Each answer is looked at as that client
does: the status, the headers that it decides by, the properties that it asks for. Programs that are not
installed are told of and not run. The last line is `N passed, N failed`.
"""

import base64
import contextlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ElementTree
from datetime import datetime
from email.utils import parsedate_to_datetime
from pathlib import Path
from urllib.parse import unquote

from mount import mounted
from plain_tools import Checks
from serve import SAMPLE, Client, serving

DAV = "{DAV:}"
APPLE = "http://www.apple.com/webdav_fs/props/"
TOKEN = "abcdefghijklmnopqrst"
DIRECTORY, FILE = "/weather", "/weather/schema.json"
FINDER = {"User_Agent": "WebDAVFS/3.0.2 (03028000) Darwin/23.5.0 (arm64)", "Accept": "*/*"}
EXPLORER = {"User_Agent": "Microsoft-WebDAV-MiniRedir/10.0.19045", "translate": "f"}
METHODS = ["GET", "HEAD", "OPTIONS", "PROPFIND"]

STAT = ["getlastmodified", "getcontentlength", "creationdate", "resourcetype"]
"""What macOS asks of each file and directory."""
QUOTA = ["quota-available-bytes", "quota-used-bytes", "quota", "quotaused"]
LOOKED_FOR = [
    "mach_kernel", ".Spotlight-V100", ".metadata_never_index", ".metadata_never_index_unless_rootfs",
    ".hidden", ".DS_Store", "._.DS_Store", "._.", "Backups.backupdb", "._Backups.backupdb", ".localized",
    "Contents", ".ql_disablethumbnails", "weather/._schema.json", "weather/.DS_Store",
]
"""What the Finder looks for in the root of each volume, and beside files that could have its attributes."""
LOOKED_FOR_BY_WINDOWS = [
    "desktop.ini", "folder.jpg", "folder.gif", "Thumbs.db", "AutoRun.inf", "weather/desktop.ini",
    "weather/schema.json.ws", "_vti_bin/owssvr.dll",
]
LOCK = """<?xml version="1.0" encoding="utf-8"?>
<D:lockinfo xmlns:D="DAV:">
<D:lockscope><D:exclusive/></D:lockscope>
<D:locktype><D:write/></D:locktype>
<D:owner>
<D:href>{}</D:href>
</D:owner>
</D:lockinfo>
"""
PATCH = """<?xml version="1.0" encoding="utf-8" ?>
<D:propertyupdate xmlns:D="DAV:" xmlns:Z="urn:schemas-microsoft-com:"><D:set><D:prop>
<Z:Win32FileAttributes>00000020</Z:Win32FileAttributes>
</D:prop></D:set></D:propertyupdate>
"""
XML = {"Content_Type": "text/xml"}
XML_UTF_8 = {"Content_Type": 'text/xml; charset="utf-8"'}


def request(*names, apple=()):
    """The body of a PROPFIND as macOS writes it."""
    inner = "".join(f"<D:{name}/>\n" for name in names) + "".join(f"<A:{name}/>\n" for name in apple)
    more = f' xmlns:A="{APPLE}"' if apple else ""
    prop = f"<D:prop{more}>\n{inner}</D:prop>\n"
    return f'<?xml version="1.0" encoding="utf-8"?>\n<D:propfind xmlns:D="DAV:">\n{prop}</D:propfind>\n'


def multistatus(body):
    """What an answer to PROPFIND says: the properties of each path, by the status that they have."""
    root = ElementTree.fromstring(body)
    assert root.tag == DAV + "multistatus", root.tag
    found = {}
    for response in root:
        path = response.findtext(DAV + "href")
        assert path not in found, path
        found[path] = {}
        for propstat in response.findall(DAV + "propstat"):
            status = int(propstat.findtext(DAV + "status").split()[1])
            assert status not in found[path], f"{path}: {status} twice"
            found[path][status] = {one.tag: one for one in propstat.find(DAV + "prop")}
    return found


def is_collection(properties):
    return properties[DAV + "resourcetype"].find(DAV + "collection") is not None


class Agent:
    """A client with the headers that it always sends."""

    def __init__(self, checks, url, name, always):
        self.checks, self.url, self.name, self.client, self.always = checks, url, name, Client(url), always

    def ask(self, method, path, body=None, **headers):
        return self.client.ask(method, path, body=body, **self.always, **headers)

    def propfind(self, path, body=None, **headers):
        """Status, headers and what is known of each path."""
        status, got, text = self.ask("PROPFIND", path, body, **headers)
        return status, got, multistatus(text) if status == 207 else {}

    def equal(self, what, got, want):
        self.checks.equal(f"{self.name}: {what}", got, want)

    def refused(self, method, path, body=None, **headers):
        """A request that would change something is refused. What is asked next is answered."""
        status, got, _ = self.ask(method, path, body, **headers)
        self.equal(f"{method} {path}", (status, sorted(got["Allow"].split(", "))), (405, METHODS))
        self.equal("... and what comes after it", self.ask("GET", "/healthz")[2].strip(), b"ok")

    def listed(self, path, found):
        """What is `found` below a directory is what its JSON has."""
        entries = json.loads(self.ask("GET", path + "/?json")[2])["entries"]
        slash = {"directory": "/", "file": ""}
        wanted = {f"{path}/{entry['name']}{slash[entry['type']]}": entry for entry in entries}
        self.equal(f"names in {path}", sorted(map(unquote, found)), sorted(wanted))
        wrong = []
        for href, properties in found.items():
            entry, there = wanted[unquote(href)], properties[200]
            size = there.get(DAV + "getcontentlength")
            modified = parsedate_to_datetime(there[DAV + "getlastmodified"].text).timestamp()
            created = datetime.fromisoformat(there[DAV + "creationdate"].text).timestamp()
            got = (is_collection(there), size is not None and int(size.text), modified, int(created))
            seconds, directory = entry["mtime"] // 1000, entry["type"] == "directory"
            if got != (directory, not directory and entry["size"], seconds, seconds):
                wrong.append((href, got))
        self.equal("... their types, sizes and times", wrong, [])


def finder(checks, url):
    """The Finder connects, mounts, lists, reads, and fails to write."""
    agent = Agent(checks, url, "Finder", FINDER)
    status, headers, body = agent.ask("OPTIONS", "/")
    # It takes the highest of the numbers 1 and 2 in this list, and mounts read-only for 1.
    levels = [level.strip() for level in headers["DAV"].split(",")]
    agent.equal("OPTIONS", (status, "1" in levels, "2" in levels, body), (200, True, False, b""))
    agent.equal("... length", headers["Content-Length"], "0")
    status, headers, found = agent.propfind("/", request(*STAT), Depth="0", **XML)
    agent.equal("the root", (status, list(found), is_collection(found["/"][200])), (207, ["/"], True))
    agent.equal("... has no length", list(found["/"][404]), [DAV + "getcontentlength"])
    for names in (QUOTA[:2], QUOTA[2:], QUOTA):
        status, _, found = agent.propfind("/", request(*names), Depth="0", **XML)
        missing = {code: list(properties) for code, properties in found["/"].items()}
        agent.equal(f"{names}", (status, missing), (207, {404: [DAV + name for name in names]}))
    for name in LOOKED_FOR:
        asked = agent.propfind("/" + name, request(*STAT), Depth="0", **XML)[0]
        agent.equal(name, (asked, agent.ask("GET", "/" + name)[0]), (404, 404))
    readdir = request(*STAT, apple=["appledoubleheader"])
    for path in (DIRECTORY, DIRECTORY + "/data", DIRECTORY + "/fragments"):
        # With the slash of a directory that was listed before, and without.
        for slash in ("", "/"):
            status, _, found = agent.propfind(path + slash, readdir, Depth="1", **XML)
            own = found.pop(path + "/")
            agent.equal(f"{path}{slash}", (status, is_collection(own[200])), (207, True))
            missing = [href for href in found if f"{{{APPLE}}}appledoubleheader" not in found[href][404]]
            agent.equal("... have no attributes of Apple's", missing, [])
            agent.listed(path, found)
    status, headers, whole = agent.ask("GET", FILE)
    modified = headers["Last-Modified"]
    agent.equal("a file", (status, int(headers["Content-Length"])), (200, len(whole)))
    agent.equal("the same file again", agent.ask("GET", FILE, If_Modified_Since=modified)[0], 304)
    status, _, body = agent.ask("GET", FILE, Range="bytes=100-", If_Range=modified)
    agent.equal("the rest of a file", (status, body), (206, whole[100:]))
    status, _, body = agent.ask("GET", FILE, Range=f"bytes=10-{(1 << 20) - 1}")
    agent.equal("a part of a file", (status, body), (206, whole[10:]))
    lock = LOCK.format("http://www.apple.com/webdav_fs/")
    agent.refused("LOCK", "/.DS_Store", lock, Depth="0", Timeout="Second-600", **XML_UTF_8)
    agent.refused("PUT", "/.DS_Store", Content_Length="0")
    # Of unknown length: in chunks.
    agent.refused("PUT", "/weather/._schema.json", iter([b"\0\5\26\7"]))
    agent.refused("MKCOL", "/weather/untitled%20folder")
    agent.refused("MOVE", FILE, Destination=url + "weather/other.json")
    agent.refused("DELETE", FILE)
    agent.refused("UNLOCK", FILE, Lock_Token="<opaquelocktoken:0>")


def explorer(checks, url):
    """The Explorer connects a drive, lists, reads, and fails to write."""
    # What asks before the service of Windows that mounts has started.
    before = Agent(checks, url, "Explorer, before", {"User_Agent": "DavClnt", "translate": "f"})
    before.equal("OPTIONS", before.ask("OPTIONS", "/")[1]["MS-Author-Via"], "DAV")
    agent = Agent(checks, url, "Explorer", EXPLORER)
    for path in ("/", DIRECTORY + "/", DIRECTORY):
        status, headers, body = agent.ask("OPTIONS", path)
        known = (headers["DAV"], headers["MS-Author-Via"], "PROPFIND" in headers["Allow"])
        agent.equal(f"OPTIONS {path}", (status, known, body), (200, ("1", "DAV", True), b""))
    for path in ("/", DIRECTORY, FILE):
        status, headers, body = agent.ask("PROPFIND", path, Depth="0", Content_Length="0")
        # It does not read answers whose own elements have no prefix.
        agent.equal(path, (status, b'<D:multistatus xmlns:D="DAV:">' in body), (207, True))
        [(href, properties)] = multistatus(body).items()
        agent.equal("... all of it is known", (href.rstrip("/"), list(properties)), (path.rstrip("/"), [200]))
    for path in (DIRECTORY, DIRECTORY + "/data"):
        status, _, found = agent.propfind(path, Depth="1", Content_Length="0")
        own = found.pop(path + "/")[200]
        # A redirect would leave it with an empty folder.
        name = own[DAV + "displayname"].text
        agent.equal(path, (status, is_collection(own), name), (207, True, Path(path).name))
        agent.listed(path, found)
        names = {unquote(Path(href).name): found[href][200][DAV + "displayname"].text for href in found}
        agent.equal("... names are shown", [name for name, shown in names.items() if name != shown], [])
    for name in LOOKED_FOR_BY_WINDOWS:
        agent.equal(name, agent.ask("PROPFIND", "/" + name, Depth="0", Content_Length="0")[0], 404)
    status, headers, whole = agent.ask("GET", FILE, Pragma="no-cache")
    known = (int(headers["Content-Length"]), "Content-Encoding" in headers)
    agent.equal("a file", (status, known), (200, (len(whole), False)))
    status, headers, _ = agent.ask("HEAD", FILE)
    agent.equal("its head", (status, int(headers["Content-Length"])), (200, len(whole)))
    agent.refused("PUT", "/weather/new.txt", Content_Length="0")
    agent.refused("LOCK", FILE, LOCK.format("HOST\\user"), Timeout="Second-3600", **XML_UTF_8)
    agent.refused("PROPPATCH", FILE, PATCH, **XML_UTF_8)
    agent.refused("MKCOL", "/weather/New%20folder")
    agent.refused("MOVE", FILE, Destination=url + "weather/other.json", Overwrite="F")


def with_token(checks, url):
    """Both begin without a user, are asked for one, and give the token as the password."""
    known = "Basic " + base64.b64encode(f"ann:{TOKEN}".encode()).decode()
    for name, always, method, more, status in [
        ("Finder", FINDER, "OPTIONS", {}, 200),
        ("Finder", FINDER, "PROPFIND", {"Depth": "0"}, 207),
        ("Explorer", EXPLORER, "OPTIONS", {}, 200),
        ("Explorer", EXPLORER, "PROPFIND", {"Depth": "0"}, 207),
    ]:
        agent = Agent(checks, url, name, always)
        got, headers, _ = agent.ask(method, "/", **more)
        basic = any(re.match(r'Basic realm="', one) for one in headers.get_all("WWW-Authenticate", []))
        agent.equal(f"{method} without a user", (got, basic), (401, True))
        got = agent.ask(method, "/", Authorization=known, **more)[0]
        agent.equal(f"{method} with the token", got, status)


def run(*command, **options):
    """A program, with what it says as text."""
    return subprocess.run(command, capture_output=True, text=True, timeout=60, **options)


def cadaver(checks, url, point):
    """Lists and fetches by commands on its standard input."""
    with tempfile.TemporaryDirectory() as home:
        fetched = Path(home, "fetched")
        commands = f"ls weather\nget weather/schema.json {fetched}\nput {__file__} weather/new\nquit\n"
        shown = run("cadaver", url, input=commands, env=os.environ | {"HOME": home}).stdout
        listed = re.findall(r"^(?:Coll:)? +(\S+) +\d+ ", shown, re.MULTILINE)
        checks.equal("cadaver: ls", sorted(listed), sorted(os.listdir(point / "weather")))
        same = fetched.exists() and fetched.read_bytes() == (point / "weather/schema.json").read_bytes()
        checks.equal("cadaver: get", same, True)
        checks.equal("cadaver: put", "405 Method Not Allowed" in shown, True)


def rclone(checks, url, point):
    """Lists a directory and all below it, copies it, and fails to write."""
    remote, top = f":webdav,url='{url}',vendor=other:weather/data/columns", point / "weather/data/columns"
    files = {path.relative_to(top).as_posix(): path for path in top.rglob("*") if path.is_file()}

    def act(*arguments):
        once = ["--retries", "1", "--low-level-retries", "1"]
        return run("rclone", "--config", "/dev/null", *once, *arguments)

    there = {}
    for entry in json.loads(act("lsjson", "-R", "--files-only", remote).stdout or "[]"):
        there[entry["Path"]] = (entry["Size"], int(datetime.fromisoformat(entry["ModTime"]).timestamp()))
    here = {name: (path.stat().st_size, int(path.stat().st_mtime)) for name, path in files.items()}
    checks.equal("rclone: names, sizes and times", there, here)
    with tempfile.TemporaryDirectory() as folder:
        checks.equal("rclone: copy", act("copy", remote, folder).returncode, 0)
        wrong = [name for name, path in files.items() if Path(folder, name).read_bytes() != path.read_bytes()]
        checks.equal("... is the same", wrong, [])
    done = act("copyto", __file__, f"{remote}/new")
    checks.equal("rclone: a copy to it", (done.returncode != 0, "405" in done.stderr), (True, True))


@contextlib.contextmanager
def davfs(url, secret=None):
    """A mount of davfs2. Yields the directory, or what mount said."""
    with tempfile.TemporaryDirectory() as folder:
        point, settings = Path(folder, "mnt"), Path(folder, "conf")
        point.mkdir()
        settings.write_text(f"use_locks 0\nask_auth {int(bool(secret))}\n")
        answers = f"ann\n{secret}\n" if secret else ""
        done = run("mount.davfs", url, point, "-o", f"ro,conf={settings}", input=answers)
        try:
            yield point if done.returncode == 0 and os.path.ismount(point) else done.stderr
        finally:
            if os.path.ismount(point) and run("umount", point).returncode:
                run("umount", "-l", point)


def davfs2(checks, url, url_with_token, point):
    """Files by their names: davfs2 1.6.1 lists the directories of no server on Linux 6.18."""
    names = ["weather/schema.json", "weather/data/columns/temperature/data.bin", "lightning/data/table.csv"]
    for who, top, secret in [("davfs2", url, None), ("davfs2 with a token", url_with_token, TOKEN)]:
        with davfs(top, secret) as there:
            checks.equal(f"{who}: mounts", isinstance(there, Path) or there, True)
            if not isinstance(there, Path):
                continue
            for name in names:
                read = subprocess.run(["cat", there / name], capture_output=True, timeout=60)
                same = read.stdout == (point / name).read_bytes()
                checks.equal(f"{who}: {name}", (read.returncode, same), (0, True))
                checks.equal("... its size", os.stat(there / name).st_size, os.stat(point / name).st_size)
            missing = run("cat", there / "weather/nothing")
            checks.equal(f"{who}: nothing", "No such file" in missing.stderr, True)
            checks.equal(f"{who}: is read-only", run("touch", there / "new").returncode != 0, True)


def main():
    checks = Checks()
    with contextlib.ExitStack() as stack:
        point = stack.enter_context(mounted(SAMPLE))
        tokens = Path(stack.enter_context(tempfile.TemporaryDirectory()), "tokens")
        tokens.write_text(f"ann:{TOKEN}\n")
        tokens.chmod(0o600)

        def serve(*options):
            [url], _ = stack.enter_context(serving(SAMPLE, "--listen", "127.0.0.1:0", *options))
            return url

        url, open_url, token_url = serve(), serve("--no-auth"), serve("--token-file", str(tokens))
        finder(checks, url)
        explorer(checks, url)
        with_token(checks, token_url)
        for program, act in [
            ("cadaver", lambda: cadaver(checks, url, point)),
            ("rclone", lambda: rclone(checks, url, point)),
            ("mount.davfs", lambda: davfs2(checks, open_url, token_url, point)),
        ]:
            if shutil.which(program):
                act()
            else:
                print(f"{program}: not run, because it is not installed")
    print(f"{checks.passed} passed, {checks.failed} failed")
    return checks.failed > 0


if __name__ == "__main__":
    sys.exit(main())
