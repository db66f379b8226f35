# SPDX-License-Identifier: Apache-2.0
"""Keys of caches: a table that peers read, as LLM-DataDist has one.

An instance that registers keys has one more cache, the directory: one block with a head (magic, bytes, CRC) and JSON.
A peer finds it by its shape, pulls it when it is asked for a key, and looks again when the key is not there.
"""

from __future__ import annotations

import ctypes
import json
import struct
import zlib
from typing import Any, Callable, Dict, List, Optional, Tuple

from . import _library as lib
from ._library import LLMException, LLMStatusCode
from ._types import BlocksCacheKey

BYTES = 1 << 20
SHAPE = (1, BYTES + 61)  # no cache of a model has such a block
_HEAD = struct.Struct("<8sII")
_MAGIC = b"kvp-dir1"
_TRIES = 100  # a table that is being written is read again


def _name(key: Any) -> str:
    if isinstance(key, BlocksCacheKey):
        return f"blocks/{key.model_id}"
    return f"cache/{key.req_id}/{key.model_id}/{key.prefix_id}"


class OwnDirectory:
    """key -> (cache id, batch index) of this instance. Not thread safe: the manager's lock is around it."""

    def __init__(self, engine: Any) -> None:
        self._engine = engine
        self._entries: Dict[str, Tuple[int, int]] = {}
        self._memory: Optional[Any] = None
        self._cache_id = ctypes.c_int64(0)

    def _open(self) -> None:
        memory = ctypes.create_string_buffer(SHAPE[1])
        tensor = lib.Tensor(ctypes.addressof(memory), 1, SHAPE[1], SHAPE[1])
        lib.check(lib.cache_register(self._engine, ctypes.byref(tensor), 1, ctypes.byref(self._cache_id)))
        self._memory = memory

    def close(self) -> None:
        if self._memory is not None:
            lib.cache_release(self._engine, self._cache_id)
            self._memory = None

    def add(self, keys: List[Any], cache_id: int) -> None:
        for key in keys:
            if _name(key) in self._entries:
                raise LLMException(f"key {key} is registered already", LLMStatusCode.LLM_PARAM_INVALID)
        for index, key in enumerate(keys):
            self._entries[_name(key)] = (cache_id, index)
        self._write()

    def remove(self, key: Any) -> None:
        if self._entries.pop(_name(key), None) is not None:
            self._write()

    def remove_cache(self, cache_id: int) -> None:
        kept = {name: entry for name, entry in self._entries.items() if entry[0] != cache_id}
        if kept != self._entries:
            self._entries = kept
            self._write()

    def _write(self) -> None:
        text = json.dumps(self._entries).encode()
        if len(text) > BYTES - _HEAD.size:
            raise LLMException("the table of keys is full (1 MiB)", LLMStatusCode.LLM_PARAM_INVALID)
        if self._memory is None:
            self._open()
        table = _HEAD.pack(_MAGIC, len(text), zlib.crc32(text)) + text
        ctypes.memmove(self._memory, table, len(table))


class RemoteDirectories:
    """What peers' directories said when they were last read."""

    def __init__(self, engine: Any, pull: Callable[[int, int, int, int], None]) -> None:
        self._engine = engine
        self._pull = pull  # (cluster, remote cache, local cache, bytes)
        self._known: Dict[int, Dict[str, List[int]]] = {}
        self._memory = ctypes.create_string_buffer(SHAPE[1])
        self._cache_id = ctypes.c_int64(0)

    def forget(self, cluster: int) -> None:
        self._known.pop(cluster, None)

    def close(self) -> None:
        if self._cache_id.value != 0:
            lib.cache_release(self._engine, self._cache_id)
            self._cache_id.value = 0

    def find(self, cluster: int, key: Any) -> Tuple[int, int]:
        name = _name(key)
        entry = self._known.get(cluster, {}).get(name)
        if entry is None:
            self._known[cluster] = self._read(cluster)
            entry = self._known[cluster].get(name)
        if entry is None:
            raise LLMException(
                f"cluster {cluster} has no cache under {key}", LLMStatusCode.LLM_KV_CACHE_NOT_EXIST
            )
        return entry[0], entry[1]

    def _read(self, cluster: int) -> Dict[str, List[int]]:
        count = ctypes.c_size_t(0)
        infos = (lib.RemoteInfo * 1024)()
        lib.check(lib.remote_list(self._engine, cluster, infos, len(infos), ctypes.byref(count)))
        for info in infos[: count.value]:
            if (info.num_tensors, info.num_blocks, info.block_bytes) == (1, *SHAPE):
                return self._read_table(cluster, info.cache_id)
        return {}

    def _read_table(self, cluster: int, remote_cache: int) -> Dict[str, List[int]]:
        if self._cache_id.value == 0:
            tensor = lib.Tensor(ctypes.addressof(self._memory), 1, SHAPE[1] - 1, SHAPE[1] - 1)
            lib.check(lib.cache_register(self._engine, ctypes.byref(tensor), 1, ctypes.byref(self._cache_id)))
        for _ in range(_TRIES):
            self._pull(cluster, remote_cache, self._cache_id.value, BYTES)
            magic, size, crc = _HEAD.unpack_from(self._memory)
            text = self._memory[_HEAD.size : _HEAD.size + size] if size <= BYTES else b""
            if magic == _MAGIC and zlib.crc32(text) == crc:
                return json.loads(text)
        raise LLMException(f"the table of keys of cluster {cluster} is damaged", LLMStatusCode.LLM_FAILED)
