#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# layers.sh - folders include only what lies below them
#
#   control -> dataplane -> engine -> include
#
# The compiler's include paths hold most of that; system headers and strings are
# checked here.
rc=0
refuse() { # WHAT PATTERN FILE...
	what=$1 pattern=$2
	shift 2
	[ $# -gt 0 ] || return 0
	# Comments are blanked, line numbers kept.
	for file; do
		[ -f "$file" ] || continue
		awk '{
			line = $0; out = ""
			while (line != "") {
				if (in_comment) {
					i = index(line, "*/")
					if (!i) break
					line = substr(line, i + 2); in_comment = 0
				} else {
					i = index(line, "/*")
					if (!i) { out = out line; break }
					out = out substr(line, 1, i - 1); line = substr(line, i + 2); in_comment = 1
				}
			}
			print out
		}' "$file" | grep -nE "$pattern" | sed "s|^|$file:|" | grep . && { echo "layers: $what"; rc=1; }
	done
	return 0
}

refuse "engine/ knows no device, clock, thread, socket or system call" \
	'#include *<(rte_|infiniband/|rdma/|pthread|threads\.h|sys/|time\.h|unistd|poll\.h|fcntl|signal\.h|netinet/|arpa/)' \
	engine/*.[ch]
refuse "engine/ does not allocate" \
	'(^|[^a-z_])(malloc|calloc|realloc|free|mmap|aligned_alloc|posix_memalign|strdup)\(' engine/*.[ch]
refuse "engine/ sees only include/" '#include *"(dataplane|control)/' engine/*.[ch]
refuse "dataplane/ does not see control/" '#include *"(\.\./)*control/' dataplane/*.[ch] dataplane/*/*.[ch]
refuse "only dataplane/ knows DPDK and devices" \
	'#include *<(rte_|infiniband/|rdma/)|(^|[^a-z_])rte_[a-z_]+\(' control/*.[ch]
refuse "installed headers know neither DPDK nor devices" \
	'#include *<(rte_|infiniband/|rdma/)' include/*/*.h
refuse "above the seam nobody includes a transport's own header" \
	'#include *"(\.\./)*(dataplane/)?(shm|tcp|verbs)/' control/*.[ch] engine/*.[ch] dataplane/*.h
# A list of names may be a default; a comparison may not be.
refuse "above the seam nobody asks a transport's name: ask its caps" \
	'(strn?cmp|strn?casecmp|memcmp)\([^;]*"(shm|tcp|verbs)"|if *\([^)]*(is_|->)(shm|tcp|verbs)[^a-z]' \
	control/*.[ch] engine/*.[ch] dataplane/*.[ch]
refuse "transports do not know each other" '#include *"(\.\./)*(dataplane/)?(tcp|verbs)' dataplane/shm/*.[ch]
refuse "transports do not know each other" '#include *"(\.\./)*(dataplane/)?(shm|verbs)' dataplane/tcp/*.[ch]
refuse "transports do not know each other" '#include *"(\.\./)*(dataplane/)?(shm|tcp)' dataplane/verbs/*.[ch]
refuse "only dataplane/verbs/ knows RDMA devices" '#include *<infiniband/' dataplane/*.[ch] dataplane/shm/*.[ch] \
	dataplane/tcp/*.[ch]
exit $rc
