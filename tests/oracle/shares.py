"""A part of all arrays or views, the same in every run: `--share 2/8` is the second of eight parts."""

import hashlib


def share(text):
    """The argument `N/M`: the number of the part, and how many there are."""
    part, parts = map(int, text.split("/"))
    return part, parts


def belongs(share, name):
    """Whether what has this name belongs to the part; to the whole if that is None."""
    if share is None:
        return True
    part, parts = share
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "big") % parts == part - 1
