# SPDX-License-Identifier: Apache-2.0
"""libkvpush itself: where it is, its structs and functions, its status numbers.

The library is the one that KVPUSH_LIBRARY names; else the one of the build tree or the installation that this
package lies in; else what the loader finds.
"""

from __future__ import annotations

import ctypes
import enum
import os
from ctypes import POINTER, c_char_p, c_int, c_int32, c_int64, c_size_t, c_uint8, c_uint32, c_uint64, c_void_p
from pathlib import Path
from typing import Any, Iterator, Sequence


class LLMStatusCode(enum.IntEnum):
    """LLM-DataDist's numbers, then kvpush's own."""

    LLM_SUCCESS = 0
    LLM_FAILED = 0xFFFFFFFF
    LLM_WAIT_PROC_TIMEOUT = 0x5010B001
    LLM_KV_CACHE_NOT_EXIST = 0x5010B002
    LLM_REPEAT_REQUEST = 0x5010B003
    LLM_PARAM_INVALID = 0x5010B005
    LLM_NOT_YET_LINK = 0x5010B007
    LLM_ALREADY_LINK = 0x5010B008
    LLM_LINK_FAILED = 0x5010B009
    LLM_UNLINK_FAILED = 0x5010B00A
    LLM_NOTIFY_PROMPT_UNLINK_FAILED = 0x5010B00B
    LLM_CLUSTER_NUM_EXCEED_LIMIT = 0x5010B00C
    LLM_PROCESSING_LINK = 0x5010B00D
    LLM_DEVICE_OUT_OF_MEMORY = 0x5010B00E
    LLM_EXIST_LINK = 0x5010B018
    LLM_FEATURE_NOT_ENABLED = 0x5010B019
    LLM_TIMEOUT = 0x5010B01A
    LLM_LINK_BUSY = 0x5010B01B
    LLM_OUT_OF_MEMORY = 0x5010B01C
    LLM_DEVICE_MEM_ERROR = 0x5010B01D
    LLM_SUSPECT_REMOTE_ERROR = 0x5010B01E
    UNKNOWN = -1

    @classmethod
    def _missing_(cls, value: object) -> "LLMStatusCode":
        return cls.UNKNOWN


class LLMException(Exception):
    """A call failed: why, in one line, and `status_code`."""

    def __init__(self, message: str, status_code: int = LLMStatusCode.LLM_FAILED) -> None:
        super().__init__(message)
        self._status_code = LLMStatusCode(status_code)

    @property
    def status_code(self) -> LLMStatusCode:
        return self._status_code


KVP_NO_EVENT = 0x5010C002
KVP_IN_PROGRESS = 0x5010C001
KVP_STATUS_OWN = 0x5010C000
_AS_NOT_LINKED = {0x5010C004, 0x5010C005}  # a lost peer, a restarted one
_AS_TIMEOUT = {0x5010C006}  # the receiver takes no more


class Tensor(ctypes.Structure):
    _fields_ = [("base", c_void_p), ("num_blocks", c_uint64), ("block_bytes", c_uint64), ("block_stride", c_uint64)]


class Layers(ctypes.Structure):
    _fields_ = [("first", c_int32), ("last", c_int32)]


class CacheRef(ctypes.Structure):
    _fields_ = [("cluster", c_uint64), ("cache", c_int64)]


class Notify(ctypes.Structure):
    _fields_ = [
        ("enabled", c_uint32),
        ("payload_bytes", c_uint32),
        ("payload", c_void_p),
        ("tag", c_uint64),
        ("layers", c_uint32),
    ]


class Push(ctypes.Structure):
    _fields_ = [
        ("src_cache", c_int64),
        ("dst", CacheRef),
        ("src_blocks", POINTER(c_uint64)),
        ("dst_blocks", POINTER(c_uint64)),
        ("count", c_size_t),
        ("src_layers", Layers),
        ("dst_layers", Layers),
        ("tensors_per_layer", c_uint32),
        ("timeout_ms", c_uint32),
        ("bytes_per_block", c_uint64),
        ("notify", Notify),
    ]


class Pull(ctypes.Structure):
    _fields_ = [
        ("src", CacheRef),
        ("dst_cache", c_int64),
        ("src_blocks", POINTER(c_uint64)),
        ("dst_blocks", POINTER(c_uint64)),
        ("count", c_size_t),
        ("src_layers", Layers),
        ("dst_layers", Layers),
        ("tensors_per_layer", c_uint32),
        ("timeout_ms", c_uint32),
        ("bytes_per_block", c_uint64),
    ]


class Copy(ctypes.Structure):
    _fields_ = [
        ("src_cache", c_int64),
        ("dst_cache", c_int64),
        ("src_blocks", POINTER(c_uint64)),
        ("dst_blocks", POINTER(POINTER(c_uint64))),
        ("lists", c_size_t),
        ("count", c_size_t),
        ("offset", c_uint64),
        ("bytes_per_block", c_uint64),
    ]


class RemoteInfo(ctypes.Structure):
    _fields_ = [
        ("cache_id", c_int64),
        ("num_tensors", c_uint32),
        ("unused", c_uint32),
        ("num_blocks", c_uint64),
        ("block_bytes", c_uint64),
    ]


def _candidates() -> Iterator[str]:
    given = os.environ.get("KVPUSH_LIBRARY")
    if given:
        yield given
        return
    here = Path(__file__).resolve().parent
    for folder in here.parents:
        yield str(folder / "build" / "release" / "libkvpush.so.0")
        yield str(folder / "libkvpush.so.0")
        yield str(folder / "lib" / "libkvpush.so.0")
    yield "libkvpush.so.0"


def _load() -> ctypes.CDLL:
    tried = []
    for name in _candidates():
        if "/" in name and not os.path.exists(name):
            continue
        try:
            return ctypes.CDLL(name)
        except OSError as error:
            tried.append(f"{name}: {error}")
    raise ImportError("libkvpush.so.0 was not found; set KVPUSH_LIBRARY to its path. " + "; ".join(tried))


_library = _load()


def _function(name: str, result: Any, *arguments: Any) -> Any:
    function = getattr(_library, name)
    function.restype = result
    function.argtypes = list(arguments)
    return function


_status = c_uint32
open_settings = _function("kvp_open_settings", _status, POINTER(c_char_p), c_size_t, POINTER(c_void_p))
close = _function("kvp_close", None, c_void_p)
port = _function("kvp_port", ctypes.c_uint16, c_void_p)
set_role = _function("kvp_set_role", _status, c_void_p, c_uint32, c_char_p)
link = _function("kvp_link", _status, c_void_p, c_char_p, c_uint32, POINTER(c_uint64))
unlink = _function("kvp_unlink", _status, c_void_p, c_uint64, c_uint32, c_int)
link_list = _function("kvp_link_list", _status, c_void_p, POINTER(c_uint64), c_size_t, POINTER(c_size_t))
remote_list = _function("kvp_remote_list", _status, c_void_p, c_uint64, POINTER(RemoteInfo), c_size_t, POINTER(c_size_t))
tensors_uniform = _function(
    "kvp_tensors_uniform", _status, c_uint32, POINTER(c_int64), c_size_t, POINTER(c_void_p), c_uint32, POINTER(Tensor)
)
cache_allocate = _function("kvp_cache_allocate", _status, c_void_p, POINTER(Tensor), c_uint32, POINTER(c_int64))
cache_register = _function("kvp_cache_register", _status, c_void_p, POINTER(Tensor), c_uint32, POINTER(c_int64))
cache_release = _function("kvp_cache_release", _status, c_void_p, c_int64)
push_blocks = _function("kvp_push_blocks", _status, c_void_p, POINTER(Push))
push_open = _function("kvp_push_open", _status, c_void_p, POINTER(Push), POINTER(c_void_p))
push_layer = _function("kvp_push_layer", _status, c_void_p, c_int32)
pull_blocks = _function("kvp_pull_blocks", _status, c_void_p, POINTER(Pull))
copy_blocks = _function("kvp_copy_blocks", _status, c_void_p, POINTER(Copy))
transfer_wait = _function("kvp_transfer_wait", _status, c_void_p, c_uint32)
transfer_cancel = _function("kvp_transfer_cancel", _status, c_void_p)
transfer_free = _function("kvp_transfer_free", None, c_void_p)
_error_message = _function("kvp_error_message", c_char_p)
_version = _function("kvp_version", c_char_p)


def version() -> str:
    return _version().decode()


def error_message() -> str:
    """Why this thread's last call of libkvpush failed."""
    return _error_message().decode(errors="replace")


def code_of(status: int) -> LLMStatusCode:
    """kvpush's own statuses as what LLM-DataDist would say."""
    if status in _AS_NOT_LINKED:
        return LLMStatusCode.LLM_NOT_YET_LINK
    if status in _AS_TIMEOUT:
        return LLMStatusCode.LLM_TIMEOUT
    if KVP_STATUS_OWN <= status <= KVP_STATUS_OWN + 0xFFF:
        return LLMStatusCode.LLM_FAILED
    return LLMStatusCode(status)


def check(status: int) -> None:
    if status != 0:
        raise LLMException(error_message(), code_of(status))


def invalid(message: str) -> LLMException:
    return LLMException(message, LLMStatusCode.LLM_PARAM_INVALID)


def block_array(blocks: Sequence[int], name: str) -> "ctypes.Array[c_uint64]":
    for block in blocks:
        if isinstance(block, bool) or not isinstance(block, int):
            raise TypeError(f"{name} has {block!r}, which is no int")
        if block < 0:
            raise invalid(f"{name} has {block}; block numbers are at least 0")
    return (c_uint64 * len(blocks))(*blocks)


def address_of(buffer: Any) -> int:
    """An int is an address; anything else is writable memory with the buffer protocol."""
    if isinstance(buffer, int):
        return buffer
    view = memoryview(buffer)
    if view.readonly:
        raise TypeError("a cache needs writable memory; this buffer is read-only")
    if not view.c_contiguous:
        raise TypeError("a cache needs contiguous memory; this buffer is not")
    return ctypes.addressof(c_uint8.from_buffer(view.cast("B")))
