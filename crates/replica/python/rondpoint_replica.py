# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Read-only data with one copy on each memory node, for Python.

    with Replica.of_file("index.bin") as index:
        near = index.nearest()          # a read-only memoryview
        array = numpy.frombuffer(near, dtype="float32")

A view is valid until its replica is closed.
"""

import ctypes

__all__ = ["Replica"]


class _Slice(ctypes.Structure):
    _fields_ = [("address", ctypes.c_void_p), ("length", ctypes.c_size_t)]


class _Place(ctypes.Structure):
    _fields_ = [
        ("node", ctypes.c_uint32),
        ("cpu_count", ctypes.c_uint32),
        ("cpus", ctypes.POINTER(ctypes.c_uint32)),
    ]


class _Options(ctypes.Structure):
    _fields_ = [
        ("size", ctypes.c_size_t),
        ("budget_bytes", ctypes.c_uint64),
        ("threads_per_node", ctypes.c_uint32),
        ("flags", ctypes.c_uint32),
        ("places", ctypes.POINTER(_Place)),
        ("place_count", ctypes.c_size_t),
    ]


_NO_HUGE_PAGES = 1
_library = None


def load(path="librondpoint_replica.so"):
    """Load the library from this path; otherwise the first use finds it as the linker does."""
    global _library
    library = ctypes.CDLL(path)
    handle = ctypes.c_void_p
    options = ctypes.POINTER(_Options)
    library.rondpoint_replica_of_file.argtypes = [ctypes.c_char_p, options]
    library.rondpoint_replica_of_file.restype = handle
    library.rondpoint_replica_of_memory.argtypes = [
        ctypes.c_char_p, ctypes.c_size_t, ctypes.c_void_p, ctypes.c_void_p, options,
    ]
    library.rondpoint_replica_of_memory.restype = handle
    library.rondpoint_replica_nearest.argtypes = [handle]
    library.rondpoint_replica_nearest.restype = _Slice
    library.rondpoint_replica_refusal.argtypes = [handle]
    library.rondpoint_replica_refusal.restype = ctypes.c_int
    library.rondpoint_replica_describe.argtypes = [handle, ctypes.c_char_p, ctypes.c_size_t]
    library.rondpoint_replica_describe.restype = ctypes.c_size_t
    library.rondpoint_replica_free.argtypes = [handle]
    library.rondpoint_replica_free.restype = None
    library.rondpoint_last_error.argtypes = []
    library.rondpoint_last_error.restype = ctypes.c_char_p
    _library = library
    return library


def _options(budget_bytes, threads_per_node, huge_pages, places):
    """The structure, and what has to live as long as it."""
    made = []
    for node, cpus in places or ():
        array = (ctypes.c_uint32 * len(cpus))(*cpus)
        made.append(_Place(node, len(cpus), array))
    array = (_Place * len(made))(*made)
    options = _Options(
        size=ctypes.sizeof(_Options),
        budget_bytes=budget_bytes,
        threads_per_node=threads_per_node,
        flags=0 if huge_pages else _NO_HUGE_PAGES,
        places=array if places is not None else None,
        place_count=len(made),
    )
    return options, (made, array)


class Replica:
    """Data with a copy on each node. `places` is a list of (node, [cpu, ...]), for tests."""

    def __init__(self, handle):
        if not handle:
            raise OSError(_library.rondpoint_last_error().decode(errors="replace"))
        self._handle = handle
        self._data = None

    @classmethod
    def of_file(cls, path, budget_bytes=0, threads_per_node=0, huge_pages=True, places=None):
        """Copies a file. Nothing may write to it or truncate it meanwhile."""
        import os

        library = _library or load()
        options, _kept = _options(budget_bytes, threads_per_node, huge_pages, places)
        return cls(library.rondpoint_replica_of_file(os.fsencode(path), ctypes.byref(options)))

    @classmethod
    def of_bytes(cls, data, budget_bytes=0, threads_per_node=0, huge_pages=True, places=None):
        """Copies bytes, which stay until the replica is closed."""
        library = _library or load()
        data = bytes(data)
        options, _kept = _options(budget_bytes, threads_per_node, huge_pages, places)
        replica = cls(
            library.rondpoint_replica_of_memory(
                data, len(data), None, None, ctypes.byref(options)
            )
        )
        replica._data = data
        return replica

    def nearest(self):
        """The copy that is nearest to the calling thread, as a read-only memoryview of bytes."""
        near = _library.rondpoint_replica_nearest(self._open())
        if near.length == 0:
            return memoryview(b"")
        view = (ctypes.c_char * near.length).from_address(near.address)
        return memoryview(view).toreadonly().cast("B")

    def has_copies(self):
        """False where readers get the original."""
        return _library.rondpoint_replica_refusal(self._open()) == 0

    def __str__(self):
        buffer = ctypes.create_string_buffer(1024)
        _library.rondpoint_replica_describe(self._open(), buffer, len(buffer))
        return buffer.value.decode(errors="replace")

    def close(self):
        """Frees the copies. Views of them are invalid from then on."""
        handle, self._handle = self._handle, None
        _library.rondpoint_replica_free(handle)
        self._data = None

    def _open(self):
        if self._handle is None:
            raise ValueError("the replica is closed")
        return self._handle

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()
