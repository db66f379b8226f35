# SPDX-License-Identifier: Apache-2.0
"""kvpush for Python: LLM-DataDist's names over libkvpush, by ctypes.

Blocking calls release the GIL. Caches lie in any object with the buffer protocol, or at an address.

    from kvpush import LLMDataDist, LLMRole, LLMConfig, LLMClusterInfo, CacheDesc, DataType

What differs from LLM-DataDist: several instances may live in one process; two-sided links (communicators) do not
exist; swap_blocks needs no accelerator on either side. Roles are labels, as there.
"""

from ._config import LLMConfig
from ._library import LLMException, LLMStatusCode, error_message, version
from ._manager import CacheManager, CacheTask, LayerSynchronizer
from ._datadist import LLMDataDist
from ._types import (
    BlocksCacheKey,
    Cache,
    CacheDesc,
    CacheKey,
    CacheKeyByIdAndIndex,
    DataType,
    LLMClusterInfo,
    LLMRole,
    Memtype,
    Placement,
    RegisterMemStatus,
    TransferConfig,
    TransferWithCacheKeyConfig,
)

__version__ = version()

__all__ = [
    "BlocksCacheKey",
    "Cache",
    "CacheDesc",
    "CacheKey",
    "CacheKeyByIdAndIndex",
    "CacheManager",
    "CacheTask",
    "DataType",
    "LLMClusterInfo",
    "LLMConfig",
    "LLMDataDist",
    "LLMException",
    "LLMRole",
    "LLMStatusCode",
    "LayerSynchronizer",
    "Memtype",
    "Placement",
    "RegisterMemStatus",
    "TransferConfig",
    "TransferWithCacheKeyConfig",
    "error_message",
]
