"""Names in the tree, by the rules of its interface."""

import hashlib


def encode(name):
    """A name (text, undecodable bytes as surrogates) as one component of a path."""
    raw = name.encode("utf-8", "surrogateescape") if isinstance(name, str) else name
    if not raw:
        return "%"
    out = ""
    for c in raw.decode("utf-8", "surrogateescape"):
        if c in "/\0%" or (c == "." and not out):
            out += f"%{ord(c):02X}"
        elif 0xDC80 <= ord(c) <= 0xDCFF:
            out += f"%{ord(c) - 0xDC00:02X}"
        else:
            out += c
    if len(out.encode()) <= 255:
        return out
    tail = "~" + hashlib.sha256(raw).hexdigest()[:16]
    return out.encode()[: 255 - len(tail)].decode("utf-8", "ignore") + tail


def attribute(name):
    """The directory of an attribute."""
    return encode(name) if name else "__attr"


def dimension(name, index):
    """The directory of a dimension."""
    return encode(name) if name else f"__dim_{index}"


def instant(milliseconds):
    """A name in `at/`: milliseconds, with a sign where the digits would be a year."""
    return f"+{milliseconds}" if 1000 <= milliseconds <= 9999 else str(milliseconds)
