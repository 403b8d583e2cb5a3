"""Stores that mean harm, on loopback: a small store of objects in memory whose replies a test replaces.

    with Hostile({"p/a": b"..."}) as store:
        store.attack = lambda request, reply: reply.error(503, endless=True)
        use(store.url)
        store.log               # all requests

It speaks what is read of S3 (also Google Cloud Storage in XML), Azure and WebDAV, one request a connection. `attack` gets each request first,
and returns whether it has replied.
"""

import dataclasses
import hashlib
import socketserver
import threading
import urllib.parse
from xml.sax.saxutils import escape

DATE, HTTP_DATE = "2024-01-01T00:00:00.000Z", "Mon, 01 Jan 2024 00:00:00 GMT"
PIECE = b"x" * (1 << 16)


@dataclasses.dataclass
class Request:
    """One request."""

    method: str
    path: str
    query: dict
    headers: dict

    @property
    def lists(self):
        """Whether it asks for a listing."""
        return self.method == "PROPFIND" or "list-type" in self.query or self.query.get("comp") == "list"

    @property
    def prefix(self):
        """What is to be listed."""
        return self.query.get("prefix", "")

    @property
    def range(self):
        """The bytes that are asked for, as (start, end); None for all."""
        found = self.headers.get("range", "").removeprefix("bytes=").split("-")
        return (int(found[0]), int(found[1]) + 1) if len(found) == 2 else None


class Reply:
    """Writes one reply."""

    def __init__(self, connection):
        self.connection = connection

    def raw(self, *pieces):
        """Sends bytes as they are. The attacker's replies may be refused at any time."""
        for piece in pieces:
            self.connection.sendall(piece)
        return True

    def head(self, status, **headers):
        """Sends status and headers."""
        lines = [f"HTTP/1.1 {status} X", "Connection: close"]
        lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
        return self.raw("\r\n".join([*lines, "", ""]).encode())

    def whole(self, status, body, **headers):
        """Sends a reply of known length."""
        return self.head(status, Content_Length=len(body), **headers) and self.raw(body)

    def stream(self, status, pieces, **headers):
        """Sends a reply of unknown length, chunk by chunk."""
        self.head(status, Transfer_Encoding="chunked", **headers)
        for piece in pieces:
            self.raw(b"%x\r\n" % len(piece), piece, b"\r\n")
        return self.raw(b"0\r\n\r\n")


def s3_object(key, size=1, etag='"e"'):
    """An object in a listing of S3."""
    return f"<Contents><Key>{escape(key)}</Key><LastModified>{DATE}</LastModified><ETag>{escape(etag)}</ETag><Size>{size}</Size></Contents>"


def s3_page(objects, token=None, more=""):
    """A page of a listing of S3."""
    end = f"<IsTruncated>true</IsTruncated><NextContinuationToken>{escape(token)}</NextContinuationToken>" if token else ""
    return f"<?xml version='1.0'?><ListBucketResult>{end}{more}{''.join(objects)}</ListBucketResult>".encode()


def azure_object(key, size=1, etag='"e"'):
    """A blob in a listing of Azure."""
    properties = f"<Last-Modified>{HTTP_DATE}</Last-Modified><Etag>{escape(etag)}</Etag><Content-Length>{size}</Content-Length>" \
                 "<Content-Type>x</Content-Type>"
    return f"<Blob><Name>{escape(key)}</Name><Properties>{properties}</Properties></Blob>"


def azure_page(objects, token=None):
    """A page of a listing of Azure."""
    return f"<?xml version='1.0'?><EnumerationResults><Blobs>{''.join(objects)}</Blobs><NextMarker>{token or ''}</NextMarker></EnumerationResults>".encode()


def dav_entry(path, size=1):
    """An entry in the listing of a directory by WebDAV."""
    kind = "<D:resourcetype><D:collection/></D:resourcetype>" if path.endswith("/") else f"<D:resourcetype/><D:getcontentlength>{size}</D:getcontentlength>"
    return f"<D:response><D:href>{urllib.parse.quote(path)}</D:href><D:propstat><D:prop><D:getlastmodified>{HTTP_DATE}</D:getlastmodified>{kind}" \
           "</D:prop><D:status>HTTP/1.1 200 OK</D:status></D:propstat></D:response>"


class Hostile:
    """See the module's documentation. `objects` maps keys to bytes, in whatever bucket is asked for."""

    def __init__(self, objects=None, attack=None):
        self.objects, self.attack, self.log = dict(objects or {}), attack, []

    def __enter__(self):
        outer = self

        class Handler(socketserver.StreamRequestHandler):
            def handle(self):
                try:
                    request = outer._parse(self.rfile)
                    if request:
                        outer.log.append(request)
                        reply = Reply(self.connection)
                        if not (outer.attack and outer.attack(request, reply)):
                            outer.answer(request, reply)
                except OSError:
                    pass

        self.server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads, self.server.block_on_close = True, False
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"
        return self

    def __exit__(self, *_):
        self.server.shutdown()
        self.server.server_close()

    @staticmethod
    def _parse(file):
        words = file.readline().decode().split()
        if len(words) != 3:
            return None
        headers = {}
        while (line := file.readline().decode().strip()):
            name, _, value = line.partition(":")
            headers[name.lower()] = value.strip()
        file.read(int(headers.get("content-length", 0)))
        url = urllib.parse.urlsplit(words[1])
        return Request(words[0], urllib.parse.unquote(url.path), dict(urllib.parse.parse_qsl(url.query)), headers)

    def answer(self, request, reply):
        """Answers as a store should: one page of everything, and ranges."""
        if request.lists:
            keys = sorted(key for key in self.objects if key.startswith(request.prefix))
            return reply.whole(200, s3_page([s3_object(key, len(self.objects[key]), self.etag(key)) for key in keys]))
        # The bucket comes first.
        key = request.path.lstrip("/").partition("/")[2]
        if key not in self.objects:
            return reply.whole(404, b"<Error><Code>NoSuchKey</Code></Error>")
        data = self.objects[key]
        start, end = request.range or (0, len(data))
        end = min(end, len(data))
        return reply.whole(206, data[start:end], ETag=self.etag(key), Last_Modified=HTTP_DATE, Content_Range=f"bytes {start}-{end - 1}/{len(data)}")

    def etag(self, key):
        """The ETag of an object."""
        return f'"{hashlib.md5(self.objects[key]).hexdigest()}"'
