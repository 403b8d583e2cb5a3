"""The pages of `tiledbfs serve`, and its WebDAV, hold what the listing holds.

    python3 serve_page.py

serves arrays made with libtiledb and the samples, and walks them: the links of each page, without its script, are the entries of the
directory and no others, its sizes and times those of the JSON; PROPFIND says the same. Pictures are compared with what libtiledb reads,
first rows with `head.csv`; times and parts are chosen through the forms. The last line is `N passed, N failed`.
"""

import contextlib
import csv
import http.client
import io
import json
import os
import subprocess
import sys
import tempfile
import urllib.parse
import xml.etree.ElementTree as ElementTree
from datetime import datetime, timezone
from html.parser import HTMLParser

import numpy as np
import tiledb
from PIL import Image

from mount import ROOT, binary
from plain_tools import Checks

LEFT_OUT = {"tiles", "c", ".tiledbfs"}
"""Directories of very many files."""

VOID = {"meta", "link", "img", "input", "br", "hr"}
"""Elements without an end."""


@contextlib.contextmanager
def served(source):
    """Serves `source`; yields host and port."""
    command = [binary(), "serve", str(source), "--listen", "127.0.0.1:0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        try:
            url = server.stdout.readline().strip()
            if not url:
                raise SystemExit(f"{' '.join(command)}: exit code {server.wait()}")
            yield urllib.parse.urlsplit(url).netloc
        finally:
            server.terminate()


class Client:
    """Asks for paths as they are, without following anything."""

    def __init__(self, host):
        self.connection = http.client.HTTPConnection(host, timeout=60)

    def ask(self, path, method="GET", body=None, **headers):
        """Status, headers and body."""
        self.connection.request(method, path, body=body, headers=headers)
        answer = self.connection.getresponse()
        return answer.status, answer.headers, answer.read()

    def get(self, path, **headers):
        status, _, body = self.ask(path, **headers)
        if status != 200:
            raise AssertionError(f"{path}: {status} {body[:200]}")
        return body


class Page(HTMLParser):
    """What a page has, with an error for elements that are not closed."""

    def __init__(self, text):
        super().__init__(convert_charrefs=True)
        self.open, self.tags, self.ids, self.text = [], [], {}, {}
        self.feed(text)
        self.close()
        assert not self.open, self.open

    def handle_starttag(self, tag, attributes):
        attributes = dict(attributes)
        entry = {"tag": tag, "attributes": attributes, "inside": [other["tag"] for other in self.open], "text": ""}
        entry["within"] = [other["attributes"].get("id") for other in self.open]
        self.tags.append(entry)
        if "id" in attributes:
            assert attributes["id"] not in self.ids, f"{attributes['id']} twice"
            self.ids[attributes["id"]] = entry
        if tag not in VOID:
            self.open.append(entry)

    def handle_endtag(self, tag):
        assert self.open and self.open[-1]["tag"] == tag, f"</{tag}> in {[entry['tag'] for entry in self.open]}"
        self.open.pop()

    def handle_data(self, data):
        for entry in self.open:
            entry["text"] += data

    def all(self, tag, within=None):
        return [entry for entry in self.tags if entry["tag"] == tag and (within is None or within in entry["within"])]


ODD = ("x\ny", "\u202eb%0Ac")
"""Names of attributes. The second picture is the first one turned round."""


def make(folder):
    """Arrays and directories, also with names that are not only letters."""
    domain = tiledb.Domain(*(tiledb.Dim(name, domain=(0, 1199), tile=100, dtype=np.int32) for name in "yx"))
    schema = tiledb.ArraySchema(domain, [tiledb.Attr("a", dtype=np.int16)])
    for name, cells in (("image", 700), ("large", 1100)):
        path = os.path.join(folder, name)
        tiledb.Array.create(path, schema)
        with tiledb.open(path, "w", timestamp=10) as array:
            array[0:cells, 0:cells] = (np.arange(cells * cells) % 1000).astype(np.int16).reshape(cells, cells)
    # Colours: one after the other, beside each other along an axis, and in a cell.
    for name, shape in (("planes", (3, 8, 10)), ("samples", (8, 10, 3))):
        tiledb.from_numpy(os.path.join(folder, name), np.arange(240, dtype=np.uint8).reshape(shape)).close()
    pixel, path = np.dtype([("", np.uint8)] * 3), os.path.join(folder, "cells")
    domain = tiledb.Domain(*(tiledb.Dim(name, domain=(0, length - 1), tile=length, dtype=np.int32) for name, length in (("y", 8), ("x", 10))))
    tiledb.Array.create(path, tiledb.ArraySchema(domain, [tiledb.Attr("a", dtype=pixel)]))
    with tiledb.open(path, "w", timestamp=10) as array:
        array[:] = np.arange(240, dtype=np.uint8).view(pixel).reshape(8, 10)
    domain = tiledb.Domain(*(tiledb.Dim(name, domain=(0, 4), tile=5, dtype=np.int32) for name in "yx"))
    path = os.path.join(folder, "odd")
    tiledb.Array.create(path, tiledb.ArraySchema(domain, [tiledb.Attr(name, dtype=np.int32) for name in ODD]))
    with tiledb.open(path, "w", timestamp=10) as array:
        array[:] = {name: np.arange(25, dtype=np.int32).reshape(5, 5) * (1 - 2 * number) for number, name in enumerate(ODD)}
    domain = tiledb.Domain(tiledb.Dim("d", domain=(None, None), tile=None, dtype="ascii"))
    for name in ("sparse", "\"><b>'&amp;", "http:a", "größe %41 #?", "\u202ea\x1b"):
        path = os.path.join(folder, "names", name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        attributes = [tiledb.Attr("t<i>", dtype="U", var=True), tiledb.Attr("n", dtype=np.int64, nullable=True)]
        tiledb.Array.create(path, tiledb.ArraySchema(domain, attributes, sparse=True))
        with tiledb.open(path, "w", timestamp=10) as array:
            array[["<b>x</b>", "y"]] = {"t<i>": np.array(["a,\"b\"\n", "http://c/"], dtype=object), "n": np.array([1, 2])}
    os.makedirs(os.fsencode(folder) + b"/names/\xff")


def stamp(milliseconds):
    return datetime.fromtimestamp(milliseconds // 1000, timezone.utc)


def directories(client, path="/"):
    """Every directory at and below a path, with its JSON."""
    known = json.loads(client.get(path + "?json"))
    yield path, known
    for entry in known["entries"]:
        if entry["type"] == "directory" and entry["name"] not in LEFT_OUT:
            yield from directories(client, path + entry["href"])


def same_page(client, path, known):
    """The page of a directory is that of its JSON."""
    status, headers, body = client.ask(path, Accept="text/html,*/*;q=0.8")
    assert status == 200 and headers["Content-Type"] == "text/html; charset=utf-8", (status, headers)
    assert "ETag" not in headers and "default-src 'none'" in headers["Content-Security-Policy"]
    page = Page(body.decode())
    assert page.all("html")[0]["attributes"]["lang"] == "en" and len(page.all("h1")) == 1 and len(page.all("main")) == 1
    for entry in page.tags:
        source = entry["attributes"].get("src", "/")
        assert source.startswith("/") and entry["tag"] not in ("link", "base", "iframe", "object"), entry
        assert "href" not in entry["attributes"] or entry["tag"] == "a"
        assert not any(name.startswith("on") or name == "style" for name in entry["attributes"]), entry
    crumbs = [entry["attributes"]["href"] for entry in page.all("a") if "nav" in entry["inside"]]
    parts = path.strip("/").split("/") if path != "/" else []
    above = ["/" + "".join(part + "/" for part in parts[:depth]) for depth in range(len(parts))]
    assert [crumb.removesuffix("#") for crumb in crumbs] == above, crumbs
    links = page.all("a", "entries")
    assert len(links) + len(crumbs) == len(page.all("a"))
    assert [entry["attributes"]["href"] for entry in links] == [entry["href"] for entry in known["entries"]]
    cells, times = page.all("td", "entries"), {}
    assert len(cells) == 2 * len(links)
    for number, entry in enumerate(known["entries"]):
        shown, directory = cells[2 * number]["text"], entry["type"] == "directory"
        assert directory and shown == "\u2013" or shown in ("?", str(entry["size"])), (entry, shown)
        times[entry["name"]] = cells[2 * number + 1]["text"]
        assert times[entry["name"]] == stamp(entry["mtime"]).strftime("%Y-%m-%d %H:%M:%S"), (entry, times)
    kind = known["kind"]
    for name in ("schema", "at", "box", "commands"):
        assert (name in page.ids) == (kind in ("array", "view") or name == "commands"), (name, kind)
    return page


def same_webdav(client, path, known):
    """PROPFIND of a directory is its JSON."""
    status, headers, body = client.ask(path, "PROPFIND", Depth="1")
    assert status == 207 and "xml" in headers["Content-Type"], (status, headers)
    dav = "{DAV:}"
    found = ElementTree.fromstring(body).findall(dav + "response")
    assert found[0].findtext(dav + "href") == path
    assert [one.findtext(dav + "href") for one in found[1:]] == [path + entry["href"] for entry in known["entries"]]
    for one, entry in zip(found[1:], known["entries"], strict=True):
        assert len(one.findall(dav + "propstat")) == 1, entry
        one = one.find(f"{dav}propstat/{dav}prop")
        directory = entry["type"] == "directory"
        assert (one.find(f"{dav}resourcetype/{dav}collection") is not None) == directory
        assert one.findtext(dav + "getlastmodified") == stamp(entry["mtime"]).strftime("%a, %d %b %Y %H:%M:%S GMT")
        size = one.findtext(dav + "getcontentlength")
        assert size == (None if directory else str(entry["size"])), (entry, size)
        assert one.findtext(dav + "getetag") == (None if directory else entry.get("etag")), entry


def same_rows(client, page, path):
    """The first rows are those of `head.csv`."""
    rows = [[cell["text"] for cell in row] for row in rows_of(page, "rows")]
    text = client.get(path + "head.csv").decode("utf-8", "backslashreplace")
    expected = list(csv.reader(io.StringIO(text)))[1:21]
    escaped = [[cell.replace("\n", "\\n") for cell in row] for row in expected]
    assert [[("" if cell == "null" else cell) for cell in row] for row in rows] == escaped, (rows, escaped)


def rows_of(page, table):
    """The cells of each row of a table's body."""
    rows, cells = [], page.all("td", table)
    width = len(page.all("th", table))
    for first in range(0, len(cells), width):
        rows.append(cells[first : first + width])
    return rows


def same_picture(client, folder):
    """Pixels are means of cells."""
    status, headers, body = client.ask("/image/data/?picture=a")
    assert status == 200 and headers["Content-Type"] == "image/png", (status, headers)
    image = Image.open(io.BytesIO(body))
    with tiledb.open(os.path.join(folder, "image")) as array:
        cells = array[0:700, 0:700]["a"].astype(float)
    assert image.size == (350, 350), image.size
    means = cells.reshape(350, 2, 350, 2).mean(axis=(1, 3))
    expected = np.round((means - means.min()) / (means.max() - means.min()) * 254)
    assert np.abs(np.asarray(image).astype(int) - expected).max() <= 1
    numbers = np.arange(240, dtype=np.uint8)
    for name, colours in (("planes", np.moveaxis(numbers.reshape(3, 8, 10), 0, 2)), ("samples", numbers.reshape(8, 10, 3)), ("cells", numbers.reshape(8, 10, 3))):
        source = Page(client.get(f"/{name}/", Accept="text/html").decode()).ids["picture"]["attributes"]["src"]
        image = Image.open(io.BytesIO(client.get(source)))
        assert image.mode == "RGB" and np.array_equal(np.asarray(image), colours), name
    for query in ("picture=b", "picture=a&band=1", "picture=a&band=-1", "picture="):
        assert client.ask(f"/image/data/?{query}")[0] == 404, query
    # 1,100 by 1,100 cells are more than are read for a picture, a part of them is not.
    assert client.ask("/large/data/?picture=a")[0] == 404
    assert "picture" not in Page(client.get("/large/", Accept="text/html").decode()).ids
    part = client.get("/large/data/subarray/0..9,0..19/?picture=a")
    assert Image.open(io.BytesIO(part)).size == (20, 10)


def odd_names(client):
    """Pictures of attributes are found by names that no form holds as they are."""
    values = [option["attributes"]["value"] for option in Page(client.get("/odd/", Accept="text/html").decode()).all("option", "attribute")]
    assert len(values) == len(ODD), values
    pictures = []
    for value in values:
        page = Page(client.get("/odd/?attribute=" + urllib.parse.quote(value), Accept="text/html").decode())
        assert [option["attributes"]["value"] for option in page.all("option", "attribute") if "selected" in option["attributes"]] == [value]
        shown = page.ids["picture"]["attributes"]["alt"] + page.ids["attribute"]["text"]
        assert not any(character in shown for character in "\n\u202e"), shown
        pictures.append(np.asarray(Image.open(io.BytesIO(client.get(page.ids["picture"]["attributes"]["src"])))))
    assert np.array_equal(pictures[0], pictures[1][::-1, ::-1]) and not np.array_equal(*pictures)


def choices(client):
    """The forms lead to directories that are there."""
    for path, query, expected in (
        ("/image/", "at=1970", "/image/at/1970/"),
        ("/image/data/", "box=0..9%2C5", "/image/data/subarray/0..9%2C5/"),
        ("/image/at/1970/data/", "box=x%3A1..2", "/image/at/1970/data/subarray/x%3A1..2/"),
        ("/image/data/subarray/0,0/", "at=1970&box=", "/image/at/1970/data/"),
    ):
        status, headers, _ = client.ask(f"{path}?{query}")
        location = urllib.parse.urlsplit(headers["Location"] or "").path
        assert (status, location) == (303, expected), (path, query, status, location)
        page = Page(client.get(location, Accept="text/html").decode())
        assert "schema" in page.ids and "box" in page.ids, location
    assert client.ask("/?at=1970")[0] == 404


def orders(client):
    """Entries are sorted by size and time."""
    known = json.loads(client.get("/image/?json"))["entries"]
    sizes = {entry["href"]: entry["size"] for entry in known if entry["type"] == "file"}
    for sort, descending in (("size", False), ("-size", True)):
        page = Page(client.get(f"/image/?sort={sort}", Accept="text/html").decode())
        hrefs = [entry["attributes"]["href"] for entry in page.all("a", "entries")]
        found = [sizes[href] for href in hrefs if href in sizes]
        assert found == sorted(sizes.values(), reverse=descending) and len(hrefs) == len(known), hrefs
        heads = [entry["attributes"]["aria-sort"] for entry in page.all("th", "entries") if "aria-sort" in entry["attributes"]]
        assert heads == ["none", "descending" if descending else "ascending", "none"], heads


def refused(client):
    """What PROPFIND does not answer."""
    for depth in ("infinity", "2", None):
        status, _, body = client.ask("/", "PROPFIND", **({"Depth": depth} if depth else {}))
        assert status == 403 and b"propfind-finite-depth" in body, (depth, status)
    for body, expected in ((b"<a", 400), (b"<!DOCTYPE a><propfind xmlns='DAV:'><allprop/></propfind>", 400), (b" " * (64 << 10) + b"x", 413)):
        assert client.ask("/", "PROPFIND", body=body, Depth="0")[0] == expected, body[:20]
        client.connection.close()


def main():
    checks = Checks()

    def check(name, work, *arguments):
        try:
            work(*arguments)
            checks.equal(name, None, None)
        except (AssertionError, KeyError, IndexError, TypeError, ValueError, ElementTree.ParseError, http.client.HTTPException) as error:
            checks.equal(name, f"{type(error).__name__}: {error}", None)

    with tempfile.TemporaryDirectory(prefix="tiledbfs-test-") as folder:
        make(folder)
        for source in (folder, ROOT / "tests/data/sample"):
            with served(source) as host:
                client = Client(host)
                for path, known in directories(client):
                    check(f"page of {path}", same_page, client, path, known)
                    check(f"PROPFIND of {path}", same_webdav, client, path, known)
                    if known["kind"] == "view":
                        page = Page(client.get(path, Accept="text/html").decode())
                        check(f"rows of {path}", same_rows, client, page, path)
                if source == folder:
                    check("picture", same_picture, client, folder)
                    check("odd names", odd_names, client)
                    check("choices", choices, client)
                    check("orders", orders, client)
                    check("refused", refused, client)
    print(f"{checks.passed} passed, {checks.failed} failed")
    return 1 if checks.failed else 0


if __name__ == "__main__":
    sys.exit(main())
