# SPDX-License-Identifier: Apache-2.0
"""CacheManager: registering, pushing, pulling and copying; layer by layer in the background."""

from __future__ import annotations

import abc
import ctypes
import functools
import threading
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple, Union

from . import _library as lib
from ._directory import OwnDirectory, RemoteDirectories
from ._library import LLMException, LLMStatusCode, address_of, block_array, check, invalid
from ._types import (
    BlocksCacheKey,
    Cache,
    CacheDesc,
    CacheKey,
    CacheKeyByIdAndIndex,
    TransferConfig,
    TransferWithCacheKeyConfig,
)

AnyKey = Union[CacheKey, CacheKeyByIdAndIndex, BlocksCacheKey]
_TIMEOUT_MAX_MS = 3600000


def _counted(call: Callable[..., Any]) -> Callable[..., Any]:
    """A call that finalize() waits for, and that fails once that has begun."""

    @functools.wraps(call)
    def counted(self: "CacheManager", *args: Any, **kwargs: Any) -> Any:
        with self._quiet:
            if self._is_closing:
                raise LLMException("finalized", LLMStatusCode.LLM_FAILED)
            self._calls += 1
        try:
            return call(self, *args, **kwargs)
        finally:
            with self._quiet:
                self._calls -= 1
                self._quiet.notify_all()

    return counted


class LayerSynchronizer(abc.ABC):
    """The caller's: is a layer ready to be moved?"""

    @abc.abstractmethod
    def synchronize_layer(self, layer_index: int, timeout_in_millis: Optional[int]) -> bool:
        """Wait until the layer is complete in memory. False: it will not be."""


class CacheTask:
    """Transfers in the background, one per configuration."""

    def __init__(self, count: int) -> None:
        self._results: List[Optional[LLMStatusCode]] = [None] * count
        self._done = threading.Event()

    def _wait(self, timeout_ms: Optional[int]) -> bool:
        return self._done.wait(None if timeout_ms is None else timeout_ms / 1000)

    def synchronize(self, timeout_in_millis: Optional[int] = None) -> LLMStatusCode:
        """SUCCESS when all were, else the first that was not; LLM_TIMEOUT when they have not ended in time."""
        if not self._wait(timeout_in_millis):
            return LLMStatusCode.LLM_TIMEOUT
        for result in self._results:
            if result not in (None, LLMStatusCode.LLM_SUCCESS):
                return result
        return LLMStatusCode.LLM_SUCCESS

    def get_results(self, timeout_in_millis: Optional[int] = None) -> List[Optional[LLMStatusCode]]:
        """One per configuration; None for one that was never begun, LLM_TIMEOUT for one that has not ended."""
        if self._wait(timeout_in_millis):
            return list(self._results)
        return [LLMStatusCode.LLM_TIMEOUT if result is None else result for result in self._results]


def _layers(layer_range: Optional[range], name: str) -> lib.Layers:
    """Half-open in Python, inclusive in C; None is all."""
    if layer_range is None:
        return lib.Layers(-1, -1)
    if not isinstance(layer_range, range):
        raise TypeError(f"{name} is {layer_range!r}: a range, or None")
    if layer_range.step != 1 or len(layer_range) == 0 or layer_range.start < 0:
        raise invalid(f"{name} is {layer_range}: not empty, step 1, from 0 on")
    return lib.Layers(layer_range.start, layer_range.stop - 1)


def _per_layer(tensor_num_per_layer: int) -> int:
    if isinstance(tensor_num_per_layer, bool) or not isinstance(tensor_num_per_layer, int):
        raise TypeError(f"tensor_num_per_layer is {tensor_num_per_layer!r}: an int")
    if not 0 <= tensor_num_per_layer <= 0xFFFFFFFF:
        raise ValueError(f"tensor_num_per_layer is {tensor_num_per_layer}")
    return tensor_num_per_layer


class _Move:
    """A push or a pull in C's form, and what its lists point into."""

    def __init__(
        self,
        request: Any,
        src_blocks: Sequence[int],
        dst_blocks: Sequence[int],
        src_range: Optional[range],
        dst_range: Optional[range],
        tensor_num_per_layer: int,
        size: int,
    ) -> None:
        if isinstance(size, bool) or not isinstance(size, int):
            raise TypeError(f"size is {size!r}: an int")
        if size != -1 and size <= 0:
            raise invalid(f"size is {size}: -1, or at least 1")
        if len(src_blocks) != len(dst_blocks):
            raise invalid(f"src_blocks has {len(src_blocks)} entries, dst_blocks {len(dst_blocks)}")
        self._src = block_array(src_blocks, "src_blocks")
        self._dst = block_array(dst_blocks, "dst_blocks")
        self.request = request
        request.src_blocks = self._src
        request.dst_blocks = self._dst
        request.count = len(src_blocks)
        request.src_layers = _layers(src_range, "src_layer_range")
        request.dst_layers = _layers(dst_range, "dst_layer_range")
        request.tensors_per_layer = _per_layer(tensor_num_per_layer)
        request.bytes_per_block = 0 if size == -1 else size

    def layers(self, num_tensors: int) -> range:
        request = self.request
        if request.src_layers.first >= 0:
            return range(request.src_layers.first, request.src_layers.last + 1)
        return range(num_tensors // max(request.tensors_per_layer, 1))


class CacheManager:
    """All of it may be called from any thread."""

    def __init__(self, engine: Any, wait_ms: int) -> None:
        self._engine = engine
        self._wait_ms = wait_ms
        self._lock = threading.Lock()
        self._memory: Dict[int, Any] = {}
        self._own = OwnDirectory(engine)
        self._remote = RemoteDirectories(engine, self._pull_table)
        self._tasks: List[threading.Thread] = []
        self._quiet = threading.Condition()
        self._calls = 0
        self._is_closing = False

    def _refuse(self) -> None:
        with self._quiet:
            self._is_closing = True

    def _close(self) -> None:
        """After the links went: what is in flight has ended, or is about to."""
        with self._quiet:
            self._quiet.wait_for(lambda: self._calls == 0)
        for task in self._tasks:
            task.join()
        with self._lock:
            self._own.close()
            self._remote.close()

    # --- caches -------------------------------------------------------------------

    def _tensors(self, desc: CacheDesc, addrs: Optional[Sequence[int]]) -> Any:
        if not 1 <= desc.num_tensors <= 4096:
            raise invalid(f"num_tensors is {desc.num_tensors}: it is in [1, 4096]")
        shape = (ctypes.c_int64 * len(desc.shape))(*desc.shape)
        tensors = (lib.Tensor * desc.num_tensors)()
        check(
            lib.tensors_uniform(
                int(desc.data_type), shape, len(desc.shape), None, desc.num_tensors, ctypes.cast(tensors, ctypes.POINTER(lib.Tensor))
            )
        )
        for tensor, addr in zip(tensors, addrs or ()):
            tensor.base = addr
        return tensors

    def _register(self, desc: CacheDesc, addrs: Sequence[Any], keys: List[Any]) -> Cache:
        if len(addrs) != desc.num_tensors:
            raise invalid(f"addrs has {len(addrs)} entries, num_tensors is {desc.num_tensors}")
        places = [address_of(addr) for addr in addrs]
        if 0 in places:
            raise invalid("an address is 0")
        tensors = self._tensors(desc, places)
        cache_id = ctypes.c_int64(0)
        check(lib.cache_register(self._engine, tensors, desc.num_tensors, ctypes.byref(cache_id)))
        return self._keep(Cache(cache_id.value, desc, places, list(addrs)), keys)

    def _keep(self, cache: Cache, keys: List[Any]) -> Cache:
        with self._lock:
            try:
                if keys:
                    self._own.add(keys, cache.cache_id)
            except LLMException:
                lib.cache_release(self._engine, cache.cache_id)
                raise
            self._memory[cache.cache_id] = cache
        return cache

    @_counted
    def register_cache(
        self,
        cache_desc: CacheDesc,
        addrs: Sequence[Any],
        cache_keys: Sequence[CacheKey] = (),
        remote_accessible: Optional[bool] = None,
    ) -> Cache:
        """addrs: addresses, or writable objects with the buffer protocol. The n-th key names batch slot n."""
        del remote_accessible  # a registered cache always is
        return self._register(cache_desc, addrs, list(cache_keys))

    @_counted
    def register_blocks_cache(
        self,
        cache_desc: CacheDesc,
        addrs: Sequence[Any],
        blocks_cache_key: Optional[BlocksCacheKey] = None,
        remote_accessible: Optional[bool] = None,
    ) -> Cache:
        del remote_accessible
        return self._register(cache_desc, addrs, [] if blocks_cache_key is None else [blocks_cache_key])

    @_counted
    def unregister_cache(self, cache_id: int) -> None:
        """An unknown one is no error."""
        check(lib.cache_release(self._engine, cache_id))
        with self._lock:
            self._own.remove_cache(cache_id)
            self._memory.pop(cache_id, None)

    def _allocate(self, desc: CacheDesc, keys: List[Any]) -> Cache:
        tensors = self._tensors(desc, None)
        cache_id = ctypes.c_int64(0)
        check(lib.cache_allocate(self._engine, tensors, desc.num_tensors, ctypes.byref(cache_id)))
        return self._keep(Cache(cache_id.value, desc, [tensor.base for tensor in tensors]), keys)

    @_counted
    def allocate_cache(self, cache_desc: CacheDesc, cache_keys: Sequence[CacheKey] = ()) -> Cache:
        return self._allocate(cache_desc, list(cache_keys))

    @_counted
    def allocate_blocks_cache(
        self, cache_desc: CacheDesc, blocks_cache_key: Optional[BlocksCacheKey] = None
    ) -> Cache:
        return self._allocate(cache_desc, [] if blocks_cache_key is None else [blocks_cache_key])

    def deallocate_cache(self, cache: Cache) -> None:
        self.unregister_cache(cache.cache_id)

    def deallocate_blocks_cache(self, cache: Cache) -> None:
        self.unregister_cache(cache.cache_id)

    @_counted
    def remove_cache_key(self, cache_key: Union[CacheKey, BlocksCacheKey]) -> None:
        with self._lock:
            self._own.remove(cache_key)

    # --- push and pull --------------------------------------------------------------

    def _resolve(self, key: AnyKey) -> Tuple[int, int, int]:
        """Cluster, cache id, batch index."""
        if isinstance(key, CacheKeyByIdAndIndex):
            return key.cluster_id, key.cache_id, key.batch_index
        if not isinstance(key, (CacheKey, BlocksCacheKey)):
            raise TypeError(f"{key!r} is no key of a cache")
        with self._lock:
            cache_id, index = self._remote.find(key.prompt_cluster_id, key)
        return key.prompt_cluster_id, cache_id, index

    def _timeout(self, layers: int) -> int:
        """The option is per layer, as upstream's."""
        return min(self._wait_ms * max(layers, 1), _TIMEOUT_MAX_MS)

    def _pull_table(self, cluster: int, remote_cache: int, local_cache: int, size: int) -> None:
        pull = lib.Pull(src=lib.CacheRef(cluster, remote_cache), dst_cache=local_cache, timeout_ms=self._timeout(1))
        move = _Move(pull, [0], [0], None, None, 1, size)
        check(lib.pull_blocks(self._engine, ctypes.byref(move.request)))

    def _pull(self, key: AnyKey, dst: Cache, src_blocks: Any, dst_blocks: Any, size: int, **kw: Any) -> None:
        src_range, dst_range = kw.pop("src_layer_range", None), kw.pop("dst_layer_range", None)
        per_layer = kw.pop("tensor_num_per_layer", 2)
        if kw:
            raise TypeError(f"unexpected arguments: {', '.join(kw)}")
        cluster, cache_id, index = self._resolve(key)
        pull = lib.Pull(src=lib.CacheRef(cluster, cache_id), dst_cache=dst.cache_id)
        if src_blocks is None:
            src_blocks = [index]
        move = _Move(pull, src_blocks, dst_blocks, src_range, dst_range, per_layer, size)
        pull.timeout_ms = self._timeout(len(move.layers(dst.cache_desc.num_tensors)))
        check(lib.pull_blocks(self._engine, ctypes.byref(pull)))

    @_counted
    def pull_cache(
        self,
        cache_key: Union[CacheKey, CacheKeyByIdAndIndex],
        cache: Cache,
        batch_index: int = 0,
        size: int = -1,
        **kwargs: Any,
    ) -> None:
        """One batch slot. Also src_layer_range, dst_layer_range, tensor_num_per_layer."""
        self._pull(cache_key, cache, None, [batch_index], size, **kwargs)

    @_counted
    def pull_blocks(
        self,
        prompt_cache_key: AnyKey,
        decoder_blocks_cache: Cache,
        prompt_blocks: Sequence[int] = (),
        decoder_blocks: Sequence[int] = (),
        **kwargs: Any,
    ) -> None:
        self._pull(prompt_cache_key, decoder_blocks_cache, list(prompt_blocks), list(decoder_blocks), -1, **kwargs)

    def _push_of(
        self, key: AnyKey, src: Cache, src_blocks: Any, dst_blocks: Any, src_range: Any, dst_range: Any, per_layer: int, size: int
    ) -> _Move:
        cluster, cache_id, index = self._resolve(key)
        push = lib.Push(src_cache=src.cache_id, dst=lib.CacheRef(cluster, cache_id))
        if dst_blocks is None:
            dst_blocks = [index]
        move = _Move(push, src_blocks, dst_blocks, src_range, dst_range, per_layer, size)
        push.timeout_ms = self._timeout(len(move.layers(src.cache_desc.num_tensors)))
        return move

    @_counted
    def push_cache(
        self,
        dst_cache_key: CacheKeyByIdAndIndex,
        src_cache: Cache,
        src_batch_index: int = 0,
        src_layer_range: Optional[range] = None,
        dst_layer_range: Optional[range] = None,
        size: int = -1,
        tensor_num_per_layer: int = 2,
    ) -> None:
        move = self._push_of(
            dst_cache_key, src_cache, [src_batch_index], None, src_layer_range, dst_layer_range, tensor_num_per_layer, size
        )
        check(lib.push_blocks(self._engine, ctypes.byref(move.request)))

    @_counted
    def push_blocks(
        self,
        dst_cache_key: Union[BlocksCacheKey, CacheKeyByIdAndIndex],
        src_cache: Cache,
        src_blocks: Sequence[int] = (),
        dst_blocks: Sequence[int] = (),
        src_layer_range: Optional[range] = None,
        dst_layer_range: Optional[range] = None,
        tensor_num_per_layer: int = 2,
    ) -> None:
        move = self._push_of(
            dst_cache_key, src_cache, list(src_blocks), list(dst_blocks), src_layer_range, dst_layer_range, tensor_num_per_layer, -1
        )
        check(lib.push_blocks(self._engine, ctypes.byref(move.request)))

    # --- layer by layer ----------------------------------------------------------------

    @_counted
    def transfer_cache_async(
        self,
        src_cache: Cache,
        layer_synchronizer: LayerSynchronizer,
        transfer_configs: Sequence[Union[TransferConfig, TransferWithCacheKeyConfig]],
        src_block_indices: Optional[Sequence[int]] = None,
        dst_block_indices: Optional[Sequence[int]] = None,
        dst_block_memory_size: Optional[int] = None,
        tensor_num_per_layer: int = 2,
    ) -> CacheTask:
        """Push each layer to every destination as soon as the synchronizer says that it is there."""
        del dst_block_memory_size  # the destination is known
        if not isinstance(layer_synchronizer, LayerSynchronizer):
            raise TypeError("layer_synchronizer is no LayerSynchronizer")
        if not transfer_configs:
            raise invalid("transfer_configs is empty")
        moves = []
        for config in transfer_configs:
            if isinstance(config, TransferConfig):
                raise LLMException(
                    "TransferConfig names addresses of the peer; use TransferWithCacheKeyConfig",
                    LLMStatusCode.LLM_FEATURE_NOT_ENABLED,
                )
            moves.append(
                self._push_of(
                    config.cache_key,
                    src_cache,
                    [config.src_batch_index] if src_block_indices is None else list(src_block_indices),
                    None if dst_block_indices is None else list(dst_block_indices),
                    config.src_layer_range,
                    config.dst_layer_range,
                    tensor_num_per_layer,
                    -1,
                )
            )
        task = CacheTask(len(moves))
        thread = threading.Thread(
            target=self._run_task, args=(task, moves, layer_synchronizer, src_cache.cache_desc.num_tensors), daemon=True
        )
        self._tasks = [running for running in self._tasks if running.is_alive()] + [thread]
        thread.start()
        return task

    def _run_task(self, task: CacheTask, moves: List[_Move], synchronizer: LayerSynchronizer, num_tensors: int) -> None:
        try:
            transfers = self._open_all(task, moves)
            self._feed(task, moves, transfers, synchronizer, num_tensors)
            for index, transfer in enumerate(transfers):
                if transfer is not None:
                    status = lib.transfer_wait(transfer, 0xFFFFFFFF)
                    if task._results[index] is None:
                        task._results[index] = lib.code_of(status)
                    lib.transfer_free(transfer)
        finally:
            task._done.set()

    def _open_all(self, task: CacheTask, moves: List[_Move]) -> List[Any]:
        transfers: List[Any] = []
        for index, move in enumerate(moves):
            transfer = ctypes.c_void_p(None)
            status = lib.push_open(self._engine, ctypes.byref(move.request), ctypes.byref(transfer))
            if status != 0:
                task._results[index] = lib.code_of(status)
            transfers.append(transfer if status == 0 else None)
        return transfers

    def _feed(
        self, task: CacheTask, moves: List[_Move], transfers: List[Any], synchronizer: LayerSynchronizer, num_tensors: int
    ) -> None:
        """Layers in ascending order, each to all that want it. A layer that does not come ends those."""
        layers = sorted({layer for move in moves for layer in move.layers(num_tensors)})
        for layer in layers:
            try:
                is_ready = not self._is_closing and synchronizer.synchronize_layer(layer, self._wait_ms)
            except Exception:  # the caller's own; what it says is lost to nobody who waits
                is_ready = False
            for index, (move, transfer) in enumerate(zip(moves, transfers)):
                if transfer is None or layer not in move.layers(num_tensors) or task._results[index] is not None:
                    continue
                if is_ready:
                    lib.push_layer(transfer, layer)
                else:
                    task._results[index] = LLMStatusCode.LLM_FAILED
                    lib.transfer_cancel(transfer)

    # --- copies ----------------------------------------------------------------------------

    def _copy(
        self, src: Cache, dst: Cache, src_blocks: Sequence[int], lists: Sequence[Sequence[int]], offset: int = 0, size: int = -1
    ) -> None:
        if size != -1 and size <= 0:
            raise invalid(f"size is {size}: -1, or at least 1")
        if not src_blocks or not lists or any(len(one) != len(src_blocks) for one in lists):
            raise invalid("lists of blocks are empty, or differ in length")
        temporary = [self._lend(cache) for cache in (src, dst)]
        try:
            arrays = [block_array(one, "dst_blocks") for one in lists]
            pointers = (ctypes.POINTER(ctypes.c_uint64) * len(lists))(
                *(ctypes.cast(array, ctypes.POINTER(ctypes.c_uint64)) for array in arrays)
            )
            copy = lib.Copy(
                src_cache=temporary[0] or src.cache_id,
                dst_cache=temporary[1] or dst.cache_id,
                src_blocks=block_array(src_blocks, "src_blocks"),
                dst_blocks=pointers,
                lists=len(lists),
                count=len(src_blocks),
                offset=offset,
                bytes_per_block=0 if size == -1 else size,
            )
            check(lib.copy_blocks(self._engine, ctypes.byref(copy)))
        finally:
            for cache_id in temporary:
                if cache_id:
                    lib.cache_release(self._engine, cache_id)

    def _lend(self, cache: Cache) -> int:
        """Memory that is nobody's cache is one for the time of a copy. 0: it is one."""
        if cache.cache_id >= 0:
            return 0
        tensors = self._tensors(cache.cache_desc, cache.tensor_addrs)
        cache_id = ctypes.c_int64(0)
        check(lib.cache_register(self._engine, tensors, cache.cache_desc.num_tensors, ctypes.byref(cache_id)))
        return cache_id.value

    @_counted
    def copy_cache(
        self,
        dst: Cache,
        src: Cache,
        dst_batch_index: int = 0,
        src_batch_index: int = 0,
        offset: int = 0,
        size: int = -1,
        req_id: Optional[int] = None,
    ) -> None:
        del req_id
        self._copy(src, dst, [src_batch_index], [[dst_batch_index]], offset, size)

    @_counted
    def copy_blocks(self, cache: Cache, copy_block_info: Dict[int, Sequence[int]]) -> None:
        """Within one cache: {source: [destinations]}."""
        src = [block for block, destinations in copy_block_info.items() for _ in destinations]
        dst = [block for destinations in copy_block_info.values() for block in destinations]
        self._copy(cache, cache, src, [dst])

    @_counted
    def swap_blocks(self, src: Cache, dst: Cache, src_to_dst: Dict[int, int]) -> None:
        """Copy blocks out of one cache into another: {source: destination}. The source keeps them."""
        self._copy(src, dst, list(src_to_dst.keys()), [list(src_to_dst.values())])

    def remap_registered_memory(self, mem_infos: Any) -> None:
        del mem_infos
        raise LLMException("remap_registered_memory does not exist here", LLMStatusCode.LLM_FEATURE_NOT_ENABLED)
