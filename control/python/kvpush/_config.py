# SPDX-License-Identifier: Apache-2.0
"""LLMConfig, and what becomes of its options."""

from __future__ import annotations

import os
import re
import warnings
from typing import Any, Dict, List, Optional

from ._library import invalid

_LISTEN = "llm.ListenIpInfo"
_WAIT = "llm.SyncKvCacheWaitTime"

# option -> setting of kvpush
_SETTINGS = {
    "llm.RdmaTrafficClass": "verbs_traffic_class",
    "llm.RdmaServiceLevel": "verbs_service_level",
}
_IGNORED = {
    "llm.DeviceId",
    "llm.BufPoolCfg",
    "llm.EnableSwitchRole",
    "llm.LocalCommRes",
    "llm.TransferBackend",
    "llm.GlobalResourceConfig",
    "llm.Role",
    "llm.ClusterInfo",
    "llm.OutputMaxSize",
    "llm.EnableRemoteCacheAccessible",
    "llm.EnableCacheManager",
    "llm.MemPoolConfig",
    "llm.HostMemPoolConfig",
    "llm.LinkTotalTime",
    "llm.LinkRetryCount",
    "llm.MemoryUtilization",
    "llm.deployResPath",
    "ge.exec.deviceId",
    "ge.session_device_id",
    "ge.flowGraphMemMaxSize",
}
# Accepted without a word: they say what is so anyway.
_SILENT = {"llm.DeviceId", "llm.EnableRemoteCacheAccessible", "llm.EnableCacheManager", "ge.exec.deviceId"}


class LLMConfig:
    """Options by name; generate_options() gives what LLMDataDist.init takes."""

    _names = {
        "device_id": "ge.exec.deviceId",
        "sync_kv_timeout": _WAIT,
        "listen_ip_info": _LISTEN,
        "deploy_res_path": "llm.deployResPath",
        "buf_pool_cfg": "llm.BufPoolCfg",
        "mem_pool_cfg": "llm.MemPoolConfig",
        "host_mem_pool_cfg": "llm.HostMemPoolConfig",
        "enable_cache_manager": "llm.EnableCacheManager",
        "enable_remote_cache_accessible": "llm.EnableRemoteCacheAccessible",
        "enable_switch_role": "llm.EnableSwitchRole",
        "rdma_traffic_class": "llm.RdmaTrafficClass",
        "rdma_service_level": "llm.RdmaServiceLevel",
        "local_comm_res": "llm.LocalCommRes",
        "link_total_time": "llm.LinkTotalTime",
        "link_retry_count": "llm.LinkRetryCount",
        "transfer_backend": "llm.TransferBackend",
        "global_resource_config": "llm.GlobalResourceConfig",
        "cluster_info": "llm.ClusterInfo",
        "output_max_size": "llm.OutputMaxSize",
        "mem_utilization": "llm.MemoryUtilization",
    }

    def __init__(self) -> None:
        object.__setattr__(self, "_values", {})
        object.__setattr__(self, "ge_options", {})

    def __getattr__(self, name: str) -> Any:
        if name not in self._names:
            raise AttributeError(name)
        return self._values.get(name)

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "ge_options":
            object.__setattr__(self, name, value)
        elif name in self._names:
            self._values[name] = value
        else:
            raise AttributeError(f"LLMConfig has no option {name}")

    def generate_options(self) -> Dict[str, str]:
        options = dict(self.ge_options)
        for name, value in self._values.items():
            if isinstance(value, bool):
                value = int(value)
            if value is not None:
                options[self._names[name]] = str(value)
        return options


def first_listener(value: str) -> str:
    """The first of "ip:port;ip:port"."""
    first = value.split(";")[0]
    if not re.fullmatch(r"(\d+\.\d+\.\d+\.\d+|\[[0-9a-fA-F:.]+\]):\d{1,5}", first):
        raise invalid(f"{_LISTEN} is {value!r}: it is ipv4:port or [ipv6]:port")
    return first


class Settings:
    """Options as settings of kvpush and what this package itself needs."""

    def __init__(self, cluster_id: int, role: int, options: Dict[str, str]) -> None:
        self.wait_ms = 1000
        self.pairs: List[str] = [f"cluster_id={cluster_id}", f"role={role}"]
        self.pairs += [pair for pair in os.environ.get("KVPUSH_SETTINGS", "").split(";") if pair]
        self._listen: Optional[str] = None
        for key, value in options.items():
            self._read(key, str(value))
        # Upstream's control connections are open too, on the hosts' network.
        local = self._listen is not None and self._listen.startswith(("127.", "[::1]"))
        if not local and not any(pair.startswith("insecure=") for pair in self.pairs):
            self.pairs.append("insecure=1")

    def _read(self, key: str, value: str) -> None:
        if key.startswith("kvpush."):
            self.pairs.append(f"{key[7:]}={value}")
        elif key == _LISTEN:
            self._listen = first_listener(value)
            self.pairs.append(f"listen={self._listen}")
        elif key == _WAIT:
            if not value.isdigit() or not 1 <= int(value) <= 3600000:
                raise invalid(f"{key} is {value!r}: it is in [1, 3600000] ms")
            self.wait_ms = int(value)
        elif key in _SETTINGS:
            self.pairs.append(f"{_SETTINGS[key]}={value}")
        elif key not in _IGNORED:
            raise invalid(f"option {key} is not known")
        elif key not in _SILENT:
            warnings.warn(f"kvpush: option {key} is ignored: nothing here corresponds to it", stacklevel=4)
