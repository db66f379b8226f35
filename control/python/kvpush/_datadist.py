# SPDX-License-Identifier: Apache-2.0
"""LLMDataDist: one engine, its links and its CacheManager."""

from __future__ import annotations

import ctypes
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Dict, List, Optional, Sequence, Tuple, Union

from . import _library as lib
from ._config import Settings, first_listener
from ._library import LLMException, LLMStatusCode, check, invalid
from ._manager import CacheManager
from ._types import LLMClusterInfo, LLMRole

_LINKS_AT_ONCE = 16
_LINK_FAILED = {0x5010C004, 0x5010C005, 0x5010C007, 0x5010C008, 0x5010C009}  # lost, restarted, protocol, address, none

Clusters = Union[LLMClusterInfo, Sequence[LLMClusterInfo]]


class LLMDataDist:
    """init() opens it, finalize() closes it; calls of other threads must have returned by then."""

    def __init__(self, role: LLMRole, cluster_id: int) -> None:
        if isinstance(cluster_id, bool) or not isinstance(cluster_id, int):
            raise TypeError(f"cluster_id is {cluster_id!r}: an int")
        if not 0 <= cluster_id < 2**64:
            raise invalid(f"cluster_id is {cluster_id}: it is in [0, 2^64)")
        self._role = LLMRole(role)
        self._cluster_id = cluster_id
        self._engine = ctypes.c_void_p(None)
        self._manager: Optional[CacheManager] = None
        self._linked: Dict[Tuple[str, int], int] = {}

    def __enter__(self) -> "LLMDataDist":
        return self

    def __exit__(self, *_: Any) -> None:
        self.finalize()

    def __del__(self) -> None:
        if getattr(self, "_manager", None) is not None:
            self.finalize()

    @property
    def cluster_id(self) -> int:
        return self._cluster_id

    @property
    def cache_manager(self) -> CacheManager:
        if self._manager is None:
            raise LLMException("not initialized", LLMStatusCode.LLM_FAILED)
        return self._manager

    @property
    def listen_port(self) -> int:
        """kvpush's own: where this instance listens, 0 if it does not."""
        self._check()
        return lib.port(self._engine)

    def _check(self) -> None:
        if self._manager is None:
            raise LLMException("not initialized", LLMStatusCode.LLM_FAILED)

    def init(self, options: Dict[str, str]) -> None:
        """options: of LLMConfig.generate_options(), and "kvpush.<setting>". A second call changes nothing."""
        if self._manager is not None:
            return
        settings = Settings(self._cluster_id, int(self._role), options)
        pairs = (ctypes.c_char_p * len(settings.pairs))(*(pair.encode() for pair in settings.pairs))
        engine = ctypes.c_void_p(None)
        check(lib.open_settings(pairs, len(pairs), ctypes.byref(engine)))
        self._engine = engine
        self._manager = CacheManager(engine, settings.wait_ms)

    def finalize(self) -> None:
        if self._manager is None:
            return
        manager, self._manager = self._manager, None
        manager._refuse()
        for cluster in self._links():
            lib.unlink(self._engine, cluster, 1000, 0)
        manager._close()
        lib.close(self._engine)
        self._engine = ctypes.c_void_p(None)
        self._linked.clear()

    def _links(self) -> List[int]:
        count = ctypes.c_size_t(0)
        clusters = (ctypes.c_uint64 * 1024)()
        lib.check(lib.link_list(self._engine, clusters, len(clusters), ctypes.byref(count)))
        return list(clusters[: min(count.value, len(clusters))])

    # --- links --------------------------------------------------------------------

    @staticmethod
    def _clusters_of(clusters: Clusters, timeout: int) -> List[LLMClusterInfo]:
        if isinstance(timeout, bool) or not isinstance(timeout, int):
            raise TypeError(f"timeout is {timeout!r}: an int")
        if timeout <= 0:
            raise invalid(f"timeout is {timeout} ms: it is at least 1")
        listed = [clusters] if isinstance(clusters, LLMClusterInfo) else list(clusters)
        if not listed:
            raise invalid("clusters is empty")
        for cluster in listed:
            if not isinstance(cluster, LLMClusterInfo):
                raise TypeError(f"{cluster!r} is no LLMClusterInfo")
        return listed

    def _each(self, clusters: List[LLMClusterInfo], call: Any) -> Tuple[LLMStatusCode, List[LLMStatusCode]]:
        """One code per cluster, in order; and the last that is not SUCCESS."""
        with ThreadPoolExecutor(min(len(clusters), _LINKS_AT_ONCE)) as pool:
            codes = list(pool.map(call, clusters))
        failed = [code for code in codes if code != LLMStatusCode.LLM_SUCCESS]
        return (failed[-1] if failed else LLMStatusCode.LLM_SUCCESS), codes

    def link_clusters(self, clusters: Clusters, timeout: int = 3000) -> Tuple[LLMStatusCode, List[LLMStatusCode]]:
        self._check()
        listed = self._clusters_of(clusters, timeout)
        for cluster in listed:
            if len(cluster.remote_ip_infos) != 1:
                raise invalid(f"a cluster has {len(cluster.remote_ip_infos)} remote_ip_infos, not 1")

        def one(cluster: LLMClusterInfo) -> LLMStatusCode:
            address = cluster.remote_ip_infos[0]
            peer = ctypes.c_uint64(0)
            status = lib.link(self._engine, f"{address[0]}:{address[1]}".encode(), timeout, ctypes.byref(peer))
            if status == 0:
                self._linked[address] = peer.value
            return LLMStatusCode.LLM_LINK_FAILED if status in _LINK_FAILED else lib.code_of(status)

        return self._each(listed, one)

    def unlink_clusters(
        self, clusters: Clusters, timeout: int = 3000, force: bool = False
    ) -> Tuple[LLMStatusCode, List[LLMStatusCode]]:
        self._check()

        def one(cluster: LLMClusterInfo) -> LLMStatusCode:
            peer = cluster.remote_cluster_id
            if cluster.remote_ip_infos:
                peer = self._linked.get(cluster.remote_ip_infos[0], peer)
            return lib.code_of(lib.unlink(self._engine, peer, timeout, int(force)))

        return self._each(self._clusters_of(clusters, timeout), one)

    def check_link_status(self, remote_cluster_id: int) -> None:
        """LLMException unless there is a usable link to that cluster."""
        self._check()
        if remote_cluster_id not in self._links():
            raise LLMException(f"no link to cluster {remote_cluster_id}", LLMStatusCode.LLM_NOT_YET_LINK)

    def switch_role(self, role: LLMRole, switch_options: Optional[Dict[str, str]] = None) -> None:
        """With llm.ListenIpInfo the listener moves there, without it stops."""
        self._check()
        listen = (switch_options or {}).get("llm.ListenIpInfo", "")
        if listen:
            listen = first_listener(listen)
        check(lib.set_role(self._engine, int(LLMRole(role)), listen.encode()))
        self._role = LLMRole(role)

    def _no_communicator(self) -> LLMException:
        return LLMException(
            "two-sided links (communicators) do not exist here: use link_clusters", LLMStatusCode.LLM_FEATURE_NOT_ENABLED
        )

    def link(self, comm_name: str, cluster_rank_info: Dict[int, int], rank_table: str) -> int:
        raise self._no_communicator()

    def unlink(self, comm_id: int) -> None:
        raise self._no_communicator()

    def query_register_mem_status(self, comm_id: int) -> Any:
        raise self._no_communicator()
