# SPDX-License-Identifier: Apache-2.0
"""A user of the installed Python package: one push between two engines, the version."""
import sys

from kvpush import CacheDesc, CacheKeyByIdAndIndex, DataType, LLMClusterInfo, LLMDataDist, LLMRole, LLMStatusCode
import kvpush

assert kvpush.__version__ == sys.argv[1], kvpush.__version__
desc = CacheDesc(2, [4, 16], DataType.DT_UINT8)
src, dst = [bytearray(b"x" * 64) for _ in range(2)], [bytearray(64) for _ in range(2)]
with LLMDataDist(LLMRole.PROMPT, 1) as prompt, LLMDataDist(LLMRole.DECODER, 2) as decoder:
    prompt.init({"llm.ListenIpInfo": "127.0.0.1:0", "kvpush.log_level": "1"})
    decoder.init({"kvpush.log_level": "1", "kvpush.insecure": "0"})
    info = LLMClusterInfo()
    info.append_remote_ip_info("127.0.0.1", prompt.listen_port)
    code, codes = decoder.link_clusters([info], 5000)
    assert code == LLMStatusCode.LLM_SUCCESS, codes
    source = prompt.cache_manager.register_blocks_cache(desc, src)
    target = decoder.cache_manager.register_blocks_cache(desc, dst)
    prompt.cache_manager.push_blocks(CacheKeyByIdAndIndex(2, target.cache_id), source, [0, 1], [3, 2])
    assert dst == [bytearray(b"\0" * 32 + b"x" * 32)] * 2, dst
print("pushed, every byte right")
