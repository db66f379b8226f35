#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The Python package: flows, tables and refusals, over each transport of KVP_TEST_TRANSPORTS.

Run with PYTHONPATH=control/python and KVPUSH_LIBRARY.
"""

import ctypes
import os
import subprocess
import sys
import threading
import unittest
import warnings

import kvpush
from kvpush import (
    BlocksCacheKey,
    Cache,
    CacheDesc,
    CacheKey,
    CacheKeyByIdAndIndex,
    DataType,
    LayerSynchronizer,
    LLMClusterInfo,
    LLMConfig,
    LLMDataDist,
    LLMException,
    LLMRole,
    LLMStatusCode,
    TransferConfig,
    TransferWithCacheKeyConfig,
)

OK = LLMStatusCode.LLM_SUCCESS
INVALID = LLMStatusCode.LLM_PARAM_INVALID
TENSORS, BLOCKS, INTS = 10, 4, 16
DESC = CacheDesc(TENSORS, [BLOCKS, INTS], DataType.DT_INT32)
transport = "shm"


def options(side, listen=False, **more):
    result = {"kvpush.transports": transport, "kvpush.log_level": "1", "llm.SyncKvCacheWaitTime": "10000"}
    if transport == "verbs":
        result["kvpush.verbs_devices"] = os.environ[f"KVP_TEST_VERBS_{side}"]
    if listen:
        result["llm.ListenIpInfo"] = "127.0.0.1:0"
    result.update(more)
    return result


def buffers(first, tensors=TENSORS):
    made = []
    for tensor in range(tensors):
        made.append((ctypes.c_int32 * (BLOCKS * INTS))(*range(first, first + BLOCKS * INTS)))
        first += BLOCKS * INTS
    return made


def cluster_at(port, cluster_id=0):
    info = LLMClusterInfo()
    info.remote_cluster_id = cluster_id
    info.append_local_ip_info("127.0.0.1", 0)
    info.append_remote_ip_info("127.0.0.1", port)
    return info


class Pair(unittest.TestCase):
    """P, cluster 0, listens; D, cluster 1, links to it. Caches of ten int32 tensors {4, 16}."""

    def setUp(self):
        self.prompt = LLMDataDist(LLMRole.PROMPT, 0)
        self.decoder = LLMDataDist(LLMRole.DECODER, 1)
        self.prompt.init(options("A", listen=True))
        self.decoder.init(options("B"))
        self.addCleanup(self.prompt.finalize)
        self.addCleanup(self.decoder.finalize)
        self.src, self.dst = buffers(1), buffers(100000)
        self.model = [list(tensor) for tensor in self.dst]
        self.port = self.prompt.listen_port
        code, codes = self.decoder.link_clusters(cluster_at(self.port), 10000)
        self.assertEqual((code, codes), (OK, [OK]))

    def register(self, **keys):
        self.src_cache = self.prompt.cache_manager.register_blocks_cache(DESC, self.src, keys.get("src"))
        self.dst_cache = self.decoder.cache_manager.register_blocks_cache(DESC, self.dst, keys.get("dst"))

    def moved(self, tensors, pairs, ints=INTS):
        """Move in the model, compare everything."""
        for tensor in tensors:
            for source, target in pairs:
                self.model[tensor][target * INTS : target * INTS + ints] = self.src[tensor][
                    source * INTS : source * INTS + ints
                ]
        self.assertEqual([list(tensor) for tensor in self.dst], self.model)

    def refused(self, code, call, *args, **kwargs):
        with self.assertRaises(LLMException) as caught:
            call(*args, **kwargs)
        self.assertEqual(caught.exception.status_code, code, str(caught.exception))
        self.assertTrue(str(caught.exception))

    # --- flows ----------------------------------------------------------------------

    def test_push_blocks_by_key_and_by_id(self):
        key = BlocksCacheKey(1, 7)
        self.register(dst=key)
        push = self.prompt.cache_manager.push_blocks
        push(key, self.src_cache, [0, 1], [0, 2])
        self.moved(range(TENSORS), [(0, 0), (1, 2)])
        push(CacheKeyByIdAndIndex(1, self.dst_cache.cache_id), self.src_cache, [3], [3], range(1, 2), range(2, 3))
        for i in range(2):
            self.model[4 + i][48:64] = self.src[2 + i][48:64]
        self.moved([], [])
        self.refused(
            LLMStatusCode.LLM_KV_CACHE_NOT_EXIST, push, BlocksCacheKey(1, 8), self.src_cache, [0], [0]
        )
        # One that is registered after the table was read is found, one that is gone is not.
        late = buffers(5)
        cache = self.decoder.cache_manager.register_blocks_cache(DESC, late, BlocksCacheKey(1, 8))
        push(BlocksCacheKey(1, 8), self.src_cache, [2], [1])
        self.assertEqual(late[9][16:32], self.src[9][32:48])
        self.refused(INVALID, self.decoder.cache_manager.register_blocks_cache, DESC, buffers(1), BlocksCacheKey(1, 8))
        self.decoder.cache_manager.unregister_cache(cache.cache_id)
        self.decoder.cache_manager.unregister_cache(cache.cache_id)
        self.refused(LLMStatusCode.LLM_KV_CACHE_NOT_EXIST, push, BlocksCacheKey(1, 8), self.src_cache, [0], [0])

    def test_pull_blocks(self):
        key = BlocksCacheKey(0, 0)
        self.register(src=key)
        pull = self.decoder.cache_manager.pull_blocks
        pull(key, self.dst_cache, [1, 2, 3], [1, 2, 3])
        self.moved(range(TENSORS), [(1, 1), (2, 2), (3, 3)])
        pull(key, self.dst_cache, [0], [0], src_layer_range=range(0, 2), dst_layer_range=range(0, 2), tensor_num_per_layer=1)
        self.moved(range(2), [(0, 0)])
        with self.assertRaises(TypeError):
            pull(key, self.dst_cache, [0], [0], no_such_argument=1)

    def test_push_and_pull_cache_slots(self):
        keys = [CacheKey(0, 100 + slot) for slot in range(BLOCKS)]
        src = self.prompt.cache_manager.register_cache(DESC, self.src, keys)
        dst = self.decoder.cache_manager.register_cache(DESC, self.dst)
        self.decoder.cache_manager.pull_cache(CacheKey(0, 102), dst, 1)
        self.moved(range(TENSORS), [(2, 1)])
        self.decoder.cache_manager.pull_cache(CacheKeyByIdAndIndex(0, src.cache_id, 3), dst, 0, size=8)
        self.moved(range(TENSORS), [(3, 0)], ints=2)
        self.prompt.cache_manager.push_cache(CacheKeyByIdAndIndex(1, dst.cache_id, 2), src, 1)
        self.moved(range(TENSORS), [(1, 2)])
        self.prompt.cache_manager.remove_cache_key(CacheKey(0, 103))
        self.refused(
            LLMStatusCode.LLM_KV_CACHE_NOT_EXIST, self.decoder.cache_manager.pull_cache, CacheKey(0, 103, 1), dst
        )
        self.refused(INVALID, self.decoder.cache_manager.pull_cache, CacheKey(0, 100), dst, 4)
        self.refused(INVALID, self.decoder.cache_manager.pull_cache, CacheKey(0, 100), dst, 0, 0)
        self.refused(INVALID, self.decoder.cache_manager.pull_cache, CacheKey(0, 100), dst, 0, 65)

    def test_both_ends_push(self):
        """Roles are labels, and a link works from both ends."""
        self.register()
        self.decoder.cache_manager.push_blocks(
            CacheKeyByIdAndIndex(0, self.src_cache.cache_id), self.dst_cache, [0], [3]
        )
        self.assertEqual(self.src[4][48:64], self.dst[4][0:16])

    def test_switch_role(self):
        self.refused(LLMStatusCode.LLM_EXIST_LINK, self.prompt.switch_role, LLMRole.DECODER)
        code, _ = self.decoder.unlink_clusters(cluster_at(self.port))
        self.assertEqual(code, OK)
        self.prompt.switch_role(LLMRole.DECODER)
        self.assertEqual(self.prompt.listen_port, 0)
        self.decoder.switch_role(LLMRole.PROMPT, {"llm.ListenIpInfo": "127.0.0.1:0"})
        self.assertNotEqual(self.decoder.listen_port, 0)
        code, _ = self.prompt.link_clusters(cluster_at(self.decoder.listen_port), 10000)
        self.assertEqual(code, OK)
        self.prompt.check_link_status(1)
        self.refused(LLMStatusCode.LLM_NOT_YET_LINK, self.prompt.check_link_status, 77)
        self.register()
        self.decoder.cache_manager.push_blocks(
            CacheKeyByIdAndIndex(0, self.src_cache.cache_id), self.dst_cache, [1], [2]
        )
        self.assertEqual(self.src[0][32:48], self.dst[0][16:32])

    def test_allocated_caches(self):
        src = self.prompt.cache_manager.allocate_blocks_cache(DESC)
        dst = self.decoder.cache_manager.allocate_cache(DESC, [CacheKey(1, 5)])
        views = [(ctypes.c_int32 * 64).from_address(address) for address in src.tensor_addrs]
        for number, view in enumerate(views):
            view[:] = range(number * 64, number * 64 + 64)
        self.prompt.cache_manager.push_blocks(CacheKeyByIdAndIndex(1, dst.cache_id), src, [0, 1, 2, 3], [3, 2, 1, 0])
        for number, address in enumerate(dst.tensor_addrs):
            view = (ctypes.c_int32 * 64).from_address(address)
            self.assertEqual(view[0:16], list(range(number * 64 + 48, number * 64 + 64)))
        self.prompt.cache_manager.deallocate_blocks_cache(src)
        self.decoder.cache_manager.deallocate_cache(dst)

    # --- tables -----------------------------------------------------------------------

    def test_ranges_and_tensor_numbers(self):
        self.register()
        key = CacheKeyByIdAndIndex(1, self.dst_cache.cache_id)
        rows = [  # source, destination, t, tensors that move or None
            (None, None, 2, range(10)),
            (range(0, 2), range(0, 2), 1, range(2)),
            (range(0, 2), range(0, 2), 2, range(4)),
            (range(4, 5), range(4, 5), 2, range(8, 10)),
            (range(0, 2), range(0, 2), 3, None),
            (range(0, 2), range(0, 2), 0, None),
            (range(0, 2), range(0, 2), 7, None),
            (range(0, 2), range(0, 2), 17, None),
            (range(-2, 1), range(0, 2), 2, None),
            (range(0, 2), range(0, 4), 2, None),
            (range(4, 6), range(0, 2), 2, None),
            (range(0, 2), range(4, 6), 2, None),
            (range(0, 4, 2), range(0, 4, 2), 2, None),
            (range(0), range(0), 2, None),
            (None, range(0, 2), 2, None),
        ]
        for src_range, dst_range, per_layer, moves in rows:
            with self.subTest(src=src_range, dst=dst_range, t=per_layer):
                arguments = (key, self.src_cache, [0, 1], [0, 1], src_range, dst_range, per_layer)
                if moves is None:
                    self.refused(INVALID, self.prompt.cache_manager.push_blocks, *arguments)
                    moves = []
                else:
                    self.prompt.cache_manager.push_blocks(*arguments)
                self.moved(moves, [(0, 0), (1, 1)])
        for wrong in (2.0, "x", None, True):
            with self.assertRaises(TypeError):
                self.prompt.cache_manager.push_blocks(key, self.src_cache, [0], [0], tensor_num_per_layer=wrong)
        with self.assertRaises(ValueError):
            self.prompt.cache_manager.push_blocks(key, self.src_cache, [0], [0], tensor_num_per_layer=-1)
        with self.assertRaises(TypeError):
            self.prompt.cache_manager.push_blocks(key, self.src_cache, [0], [0], (0, 1), (0, 1))

    def test_bad_arguments(self):
        self.register()
        key = CacheKeyByIdAndIndex(1, self.dst_cache.cache_id)
        push = self.prompt.cache_manager.push_blocks
        self.refused(INVALID, push, key, self.src_cache)
        self.refused(INVALID, push, key, self.src_cache, [0], [])
        self.refused(INVALID, push, key, self.src_cache, [4], [0])
        self.refused(INVALID, push, key, self.src_cache, [0], [4])
        self.refused(INVALID, push, key, self.src_cache, [0, 1], [2, 2])
        self.refused(INVALID, push, key, self.src_cache, [-1], [0])
        self.refused(LLMStatusCode.LLM_NOT_YET_LINK, push, CacheKeyByIdAndIndex(9, 1), self.src_cache, [0], [0])
        self.refused(LLMStatusCode.LLM_NOT_YET_LINK, push, BlocksCacheKey(9), self.src_cache, [0], [0])
        self.refused(LLMStatusCode.LLM_KV_CACHE_NOT_EXIST, push, CacheKeyByIdAndIndex(1, 99), self.src_cache, [0], [0])
        self.refused(LLMStatusCode.LLM_KV_CACHE_NOT_EXIST, push, key, Cache(99, DESC), [0], [0])
        for wrong in ([0.0], ["0"], [True]):
            with self.assertRaises(TypeError):
                push(key, self.src_cache, wrong, [0])
        with self.assertRaises(TypeError):
            push("key", self.src_cache, [0], [0])
        register = self.prompt.cache_manager.register_cache
        self.refused(INVALID, register, DESC, self.src[:9])
        self.refused(INVALID, register, DESC, [0] * 10)
        self.refused(INVALID, register, CacheDesc(0, [4, 16], DataType.DT_INT32), [])
        self.refused(INVALID, register, CacheDesc(10, [], DataType.DT_INT32), self.src)
        self.refused(INVALID, register, CacheDesc(10, [4, 0], DataType.DT_INT32), self.src)
        with self.assertRaises(TypeError):
            register(CacheDesc(1, [1, 4], DataType.DT_INT8), [b"read-only"])
        self.moved([], [])

    def test_links(self):
        code, codes = self.decoder.link_clusters([cluster_at(self.port)], 10000)
        self.assertEqual((code, codes), (LLMStatusCode.LLM_ALREADY_LINK, [LLMStatusCode.LLM_ALREADY_LINK]))
        code, codes = self.decoder.link_clusters([cluster_at(1), cluster_at(self.port)], 10000)
        self.assertEqual(codes, [LLMStatusCode.LLM_LINK_FAILED, LLMStatusCode.LLM_ALREADY_LINK])
        self.assertEqual(code, LLMStatusCode.LLM_ALREADY_LINK)
        for _ in range(2):  # the second time there is none
            self.assertEqual(self.decoder.unlink_clusters(cluster_at(self.port))[0], OK)
        self.refused(INVALID, self.decoder.link_clusters, [])
        self.refused(INVALID, self.decoder.link_clusters, cluster_at(self.port), 0)
        self.refused(INVALID, self.decoder.link_clusters, LLMClusterInfo())
        with self.assertRaises(TypeError):
            self.decoder.link_clusters(cluster_at(self.port), "1")
        with self.assertRaises(TypeError):
            self.decoder.link_clusters([1])
        for call in (lambda: self.decoder.link("c", {}, ""), lambda: self.decoder.unlink(1)):
            self.refused(LLMStatusCode.LLM_FEATURE_NOT_ENABLED, call)

    # --- copies -------------------------------------------------------------------------

    def test_copies(self):
        self.register()
        manager = self.prompt.cache_manager
        other = buffers(5000)
        cache = manager.register_cache(DESC, other)
        manager.copy_cache(cache, self.src_cache, 2, 1)
        self.assertEqual(other[9][32:48], self.src[9][16:32])
        manager.copy_cache(cache, self.src_cache, 0, 0, offset=8, size=4)
        self.assertEqual(other[0][0:4], [5000, 5001, 3, 5003])
        manager.copy_blocks(self.src_cache, {0: [2, 3]})
        self.assertEqual(self.src[3][32:64], self.src[3][0:16] * 2)
        host = buffers(7000)
        out = Cache.create_cpu_cache(DESC, host)
        manager.swap_blocks(self.src_cache, out, {0: 1, 1: 0})
        self.assertEqual(host[5][16:32], self.src[5][0:16])
        self.assertEqual(host[5][0:16], self.src[5][16:32])
        manager.swap_blocks(out, cache, {3: 3})
        self.assertEqual(other[5][48:64], host[5][48:64])
        self.refused(INVALID, manager.swap_blocks, self.src_cache, out, {})
        self.refused(INVALID, manager.swap_blocks, self.src_cache, out, {4: 0})
        self.refused(INVALID, manager.copy_blocks, self.src_cache, {0: [0]})
        self.refused(INVALID, manager.copy_cache, cache, self.src_cache, 4, 0)
        self.refused(INVALID, manager.copy_cache, cache, self.src_cache, 0, 0, 64)
        self.refused(LLMStatusCode.LLM_FEATURE_NOT_ENABLED, manager.remap_registered_memory, [])

    # --- layer by layer -------------------------------------------------------------------

    def test_transfer_cache_async(self):
        self.register()
        test = self

        class Synchronizer(LayerSynchronizer):
            def __init__(self):
                self.asked = []

            def synchronize_layer(self, layer_index, timeout_in_millis):
                # What was ready before has moved, or is about to; this one has not.
                test.assertEqual(list(test.dst[layer_index * 2])[0:16], test.model[layer_index * 2][0:16])
                self.asked.append(layer_index)
                return True

        synchronizer = Synchronizer()
        key = CacheKeyByIdAndIndex(1, self.dst_cache.cache_id)
        task = self.prompt.cache_manager.transfer_cache_async(
            self.src_cache, synchronizer, [TransferWithCacheKeyConfig(key)], [0, 1], [0, 1]
        )
        self.assertEqual(task.synchronize(10000), OK)
        self.assertEqual(task.get_results(), [OK])
        self.assertEqual(synchronizer.asked, [0, 1, 2, 3, 4])
        self.moved(range(TENSORS), [(0, 0), (1, 1)])
        # Two destinations with ranges of their own: one batch slot each.
        task = self.prompt.cache_manager.transfer_cache_async(
            self.src_cache,
            Ready(),
            [
                TransferWithCacheKeyConfig(CacheKeyByIdAndIndex(1, self.dst_cache.cache_id, 3), range(0, 2), range(0, 2), 2),
                TransferWithCacheKeyConfig(CacheKeyByIdAndIndex(1, 99, 0), range(0, 2), range(0, 2)),
            ],
        )
        self.assertEqual(task.synchronize(10000), LLMStatusCode.LLM_KV_CACHE_NOT_EXIST)
        self.assertEqual(task.get_results(), [OK, LLMStatusCode.LLM_KV_CACHE_NOT_EXIST])
        self.moved(range(4), [(2, 3)])

    def test_transfer_cache_async_that_does_not_end_well(self):
        self.register()
        key = CacheKeyByIdAndIndex(1, self.dst_cache.cache_id)
        start = self.prompt.cache_manager.transfer_cache_async
        task = start(self.src_cache, Ready(until=1), [TransferWithCacheKeyConfig(key)], [0], [0])
        self.assertEqual(task.synchronize(10000), LLMStatusCode.LLM_FAILED)
        gate = threading.Event()
        task = start(self.src_cache, Ready(gate=gate), [TransferWithCacheKeyConfig(key)], [0], [0])
        self.assertEqual(task.synchronize(20), LLMStatusCode.LLM_TIMEOUT)
        self.assertEqual(task.get_results(0), [LLMStatusCode.LLM_TIMEOUT])
        gate.set()
        self.assertEqual(task.synchronize(10000), OK)
        self.moved(range(TENSORS), [(0, 0)])
        self.refused(
            LLMStatusCode.LLM_FEATURE_NOT_ENABLED, start, self.src_cache, Ready(), [TransferConfig(1, [1] * 10)], [0], [0]
        )
        self.refused(INVALID, start, self.src_cache, Ready(), [])
        with self.assertRaises(TypeError):
            start(self.src_cache, None, [TransferWithCacheKeyConfig(key)])

    # --- beginning and end ----------------------------------------------------------------

    def test_init_and_finalize(self):
        for wrong in (
            {"llm.NoSuchOption": "1"},
            {"kvpush.no_such": "1"},
            {"llm.ListenIpInfo": "localhost:1"},
            {"llm.SyncKvCacheWaitTime": "0"},
            {"llm.SyncKvCacheWaitTime": "1s"},
            {"llm.RdmaTrafficClass": "256"},
        ):
            with self.subTest(wrong):
                self.refused(INVALID, LLMDataDist(LLMRole.MIX, 5).init, wrong)
        config = LLMConfig()
        config.device_id = 0
        config.sync_kv_timeout = 700
        config.enable_cache_manager = True
        config.rdma_traffic_class = 132
        config.ge_options = {"ge.flowGraphMemMaxSize": "1"}
        config.transfer_backend = "hixl"
        with self.assertRaises(AttributeError):
            config.no_such_option = 1
        third = LLMDataDist(LLMRole.MIX, 5)
        self.refused(LLMStatusCode.LLM_FAILED, third.link_clusters, cluster_at(self.port))
        self.refused(LLMStatusCode.LLM_FAILED, lambda: third.cache_manager)
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            third.init({**config.generate_options(), **options("B")})
        self.assertEqual(len([w for w in said if "ignored" in str(w.message)]), 2)
        third.init({"nonsense": ""})  # a second time: nothing
        manager = third.cache_manager
        third.finalize()
        third.finalize()
        self.refused(LLMStatusCode.LLM_FAILED, lambda: third.cache_manager)
        self.refused(LLMStatusCode.LLM_FAILED, manager.unregister_cache, 1)
        with self.assertRaises(ValueError):
            LLMDataDist(7, 0)
        self.refused(INVALID, LLMDataDist, LLMRole.MIX, -1)

    def test_finalize_under_load(self):
        """Calls of another thread end, and say so; bytes go on until then, the GIL is theirs."""
        self.register()
        key = CacheKeyByIdAndIndex(1, self.dst_cache.cache_id)
        good, ended, enough = [0], [], threading.Event()

        def push():
            try:
                while True:
                    self.prompt.cache_manager.push_blocks(key, self.src_cache, [0, 1], [0, 1])
                    good[0] += 1
                    if good[0] >= 30:
                        enough.set()
            except LLMException as error:
                ended.append(error.status_code)

        threads = [threading.Thread(target=push) for _ in range(3)]
        for thread in threads:
            thread.start()
        self.assertTrue(enough.wait(60))
        self.prompt.finalize()
        for thread in threads:
            thread.join()
        self.assertEqual(len(ended), 3)
        for code in ended:
            self.assertIn(code, (LLMStatusCode.LLM_FAILED, LLMStatusCode.LLM_NOT_YET_LINK))

    def test_another_process(self):
        """Push into a cache of another interpreter, by its key."""
        child = subprocess.Popen(
            [sys.executable, __file__, "--child", transport],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.addCleanup(child.kill)
        port = int(child.stdout.readline())
        self.register()
        code, _ = self.prompt.link_clusters(cluster_at(port), 10000)
        self.assertEqual(code, OK)
        self.prompt.cache_manager.push_blocks(BlocksCacheKey(2, 1), self.src_cache, [0, 3], [3, 0])
        out, _ = child.communicate("look\n", timeout=60)
        self.assertEqual(out.split(), [str(sum(self.src[9][0:16])), str(sum(self.src[9][48:64]))])
        self.assertEqual(child.returncode, 0)


class Ready(LayerSynchronizer):
    """Every layer is there, but none from `until` on; after `gate`."""

    def __init__(self, until=1000, gate=None):
        self.until, self.gate = until, gate

    def synchronize_layer(self, layer_index, timeout_in_millis):
        if self.gate is not None:
            self.gate.wait()
        return layer_index < self.until


def child(name):
    global transport
    transport = name
    with LLMDataDist(LLMRole.DECODER, 2) as decoder:
        decoder.init(options("B", listen=True))
        dst = buffers(100000)
        decoder.cache_manager.register_blocks_cache(DESC, dst, BlocksCacheKey(2, 1))
        print(decoder.listen_port, flush=True)
        sys.stdin.readline()
        print(sum(dst[9][48:64]), sum(dst[9][0:16]), flush=True)


def main():
    global transport
    passed = failed = 0
    for transport in os.environ.get("KVP_TEST_TRANSPORTS", "shm,tcp").split(","):
        print(f"== over {transport}, {kvpush.__version__}", flush=True)
        result = unittest.TextTestRunner(stream=sys.stdout, verbosity=1).run(
            unittest.defaultTestLoader.loadTestsFromTestCase(Pair)
        )
        bad = len(result.failures) + len(result.errors)
        failed += bad
        passed += result.testsRun - bad
    print(f"[  PASSED  ] {passed} test(s).")
    if failed:
        print(f"[  FAILED  ] {failed} test(s), listed above")
    return 1 if failed else 0


if __name__ == "__main__":
    if sys.argv[1:2] == ["--child"]:
        child(sys.argv[2])
    else:
        sys.exit(main())
