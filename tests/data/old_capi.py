"""The C API of libtiledb since 1.5: the functions that `capi.Lib` needs, made from those of an old release."""

import ctypes as ct
import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "oracle"))
from capi import Lib  # noqa: E402

OPTIONAL = {
    "tiledb_array_schema_set_allows_dups", "tiledb_attribute_set_nullable",
    "tiledb_array_schema_evolution_set_timestamp_range",
}
"""Functions that set a default, or the only choice, if a release lacks them."""


class OldLib(Lib):
    """Any release of libtiledb, its shared library given by path."""

    def __init__(self, path):
        self.c = ct.CDLL(str(path))
        numbers = [ct.c_int32() for _ in range(3)]
        self.c.tiledb_version(*[ct.byref(n) for n in numbers])
        self.release = tuple(n.value for n in numbers)
        self._contexts = {}
        self.use()

    def has(self, name):
        """Whether the release has a function."""
        return hasattr(self.c, name)

    def config(self, **settings):
        """A configuration; before 2.0, threads are limited under another name."""
        if self.release >= (2, 0):
            return super().config(**settings)
        config, error = ct.c_void_p(), ct.c_void_p()
        self.c.tiledb_config_alloc(ct.byref(config), ct.byref(error))
        for name, value in ({"sm__num_tbb_threads": "1"} | settings).items():
            self.c.tiledb_config_set(config, name.replace("__", ".").encode(), str(value).encode(), ct.byref(error))
        return config

    def call(self, name, *args):
        """The base's call; skips a function that the release lacks and that is optional."""
        if name in OPTIONAL and not self.has(name):
            return
        super().call(name, *args)

    def open(self, uri, mode, timestamp=None, key=None, start=None):
        """Opens an array at a time. Before 2.0, writes always use the clock."""
        if timestamp is None or self.has("tiledb_array_set_open_timestamp_end"):
            return super().open(uri, mode, timestamp, key, start)
        array = self.get("tiledb_array_alloc", uri)
        if self.release >= (2, 0):
            self.call("tiledb_array_open_at", array, mode, timestamp)
        else:
            self.call("tiledb_array_open", array, mode)
        return array

    def schema(self, schema, timestamp=None):
        """A schema, stamped if the release can do that."""
        if not self.has("tiledb_array_schema_alloc_at_timestamp"):
            timestamp = None
        return super().schema(schema, timestamp)

    def _set_ranges(self, array, query, ranges):
        if self.has("tiledb_query_set_subarray_t"):
            super()._set_ranges(array, query, ranges)
        else:
            self.call("tiledb_query_set_subarray", query, np.concatenate(ranges))

    def _set_buffer(self, query, name, column, sizes):
        if self.has("tiledb_query_set_data_buffer"):
            super()._set_buffer(query, name, column, sizes)
            return
        args, function = [], "tiledb_query_set_buffer"
        if column.offsets is not None:
            function += "_var"
        if column.validity is not None:
            function += "_nullable"
        for part in (column.offsets, column.data, column.validity):
            if part is not None:
                memory = np.ascontiguousarray(part)
                memory = memory if memory.nbytes else np.zeros(1, "u1")
                size = ct.c_uint64(np.asarray(part).nbytes)
                args += [memory, ct.byref(size)]
                sizes[name, len(sizes)] = (memory, size)
        self.call(function, query, name, *args)

    def consolidate(self, uri, mode="fragments", vacuum=False, key=None, **settings):
        """Consolidates; before 2.0 that also removes the consolidated fragments."""
        if self.release >= (2, 0):
            settings = {"sm__mem__total_budget": 64 << 20} | settings
        self.use(key, sm__consolidation__mode=mode, **settings)
        self.call("tiledb_array_consolidate", uri, None)
        if vacuum:
            self.use(key, sm__vacuum__mode=mode)
            self.call("tiledb_array_vacuum", uri, None)
        self.use()
