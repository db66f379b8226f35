# SPDX-License-Identifier: Apache-2.0
"""The plain types of LLM-DataDist's Python interface."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from typing import Any, List, Optional, Sequence, Tuple

from ._library import invalid


class LLMRole(enum.IntEnum):
    PROMPT = 1
    DECODER = 2
    MIX = 3


class Placement(enum.IntEnum):
    HOST = 0
    DEVICE = 1


class Memtype(enum.IntEnum):
    MEM_TYPE_DEVICE = 0
    MEM_TYPE_HOST = 1


class RegisterMemStatus(enum.IntEnum):
    OK = 0
    PREPARING = 1
    FAILED = 2


class DataType(enum.IntEnum):
    DT_FLOAT = 0
    DT_FLOAT16 = 1
    DT_INT8 = 2
    DT_INT32 = 3
    DT_UINT8 = 4
    DT_INT16 = 6
    DT_UINT16 = 7
    DT_UINT32 = 8
    DT_INT64 = 9
    DT_UINT64 = 10
    DT_DOUBLE = 11
    DT_BOOL = 12
    DT_BF16 = 27


@dataclass
class CacheDesc:
    """num_tensors tensors of one shape; its dimension 0 counts blocks, which are batch slots too."""

    num_tensors: int
    shape: Sequence[int]
    data_type: DataType
    placement: Placement = Placement.DEVICE
    batch_dim_index: int = 0
    seq_len_dim_index: int = -1
    kv_tensor_format: Optional[str] = None


@dataclass
class Cache:
    cache_id: int
    cache_desc: CacheDesc
    tensor_addrs: List[int] = field(default_factory=list)
    _memory: Any = None  # keeps the caller's buffers alive

    @classmethod
    def create_cpu_cache(cls, cache_desc: CacheDesc, addrs: Sequence[Any]) -> "Cache":
        """Host memory that is nobody's cache: for copy_cache, copy_blocks and swap_blocks."""
        from ._library import address_of

        return cls(-1, cache_desc, [address_of(addr) for addr in addrs], list(addrs))


@dataclass(frozen=True)
class CacheKey:
    prompt_cluster_id: int
    req_id: int
    model_id: int = 0
    prefix_id: int = 2**64 - 1


@dataclass(frozen=True)
class CacheKeyByIdAndIndex:
    cluster_id: int
    cache_id: int
    batch_index: int = 0


@dataclass(frozen=True)
class BlocksCacheKey:
    prompt_cluster_id: int
    model_id: int = 0


class LLMClusterInfo:
    """Whom to link to."""

    def __init__(self) -> None:
        self.remote_cluster_id: int = 0
        self.remote_role_type: int = 0
        self.local_ip_infos: List[Tuple[str, int]] = []
        self.remote_ip_infos: List[Tuple[str, int]] = []

    def append_local_ip_info(self, ip: str, port: int) -> None:
        self.local_ip_infos.append((_ip(ip), _port(port)))

    def append_remote_ip_info(self, ip: str, port: int) -> None:
        self.remote_ip_infos.append((_ip(ip), _port(port)))


def _ip(ip: Any) -> str:
    if isinstance(ip, int):  # as ints in network order, too
        return ".".join(str(ip >> shift & 0xFF) for shift in (24, 16, 8, 0))
    if not isinstance(ip, str):
        raise TypeError(f"ip is {ip!r}: a str")
    return ip


def _port(port: int) -> int:
    if isinstance(port, bool) or not isinstance(port, int):
        raise TypeError(f"port is {port!r}: an int")
    if not 0 <= port <= 65535:
        raise invalid(f"port is {port}: it is in [0, 65535]")
    return port


@dataclass
class TransferConfig:
    """By addresses over there. Nothing of kvpush writes to an address that it was not announced: refused."""

    dst_cluster_id: int
    dst_addrs: Sequence[int]
    src_layer_range: Optional[range] = None
    src_batch_index: int = 0


@dataclass
class TransferWithCacheKeyConfig:
    cache_key: Any
    src_layer_range: Optional[range] = None
    dst_layer_range: Optional[range] = None
    src_batch_index: int = 0
