# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash disable=SC2154,SC2016
# refusals.sh - for faults.sh: machines and settings that verbs cannot work with
#
# Each must end with exit status 3 and one line that names what was found. A transport list of verbs
# alone, or verbs with a device by name, never becomes tcp.

# refused WORDS... -- COMMAND...: it is refused, and its line has these words (extended patterns)
refused() {
	local words=() word rc out
	while [[ $1 != -- ]]; do words+=("$1") && shift; done
	shift
	out=$("$@" 2>&1)
	rc=$?
	echo "$out"
	((rc == 3)) || fail "exit status $rc, not 3"
	out=$(grep -E '^load: ' <<<"$out")
	(($(wc -l <<<"$out") == 1)) || fail "not one line"
	for word in "${words[@]}"; do grep -qE -e "$word" <<<"$out" || fail "no '$word' in its line"; done
}

# As a user without rights; the tree may be in a folder that is closed to him.
as_nobody() {
	cp "$load" "$dir/load" && chmod 755 "$dir" "$dir/load"
	setpriv --reuid=65534 --regid=65534 --clear-groups --inh-caps=-all --bounding-set=-all \
		sh -c 'cd / && ulimit -l "$1" && shift && exec "$@"' sh "$1" "$dir/load" "${@:2}"
}

refusal__unknown_device() { refused rxe9 rxe0 -- "$load" try --set=verbs_devices=rxe9; }
refusal__unknown_device_before_tcp() {
	refused rxe9 -- "$load" try --set=transports=verbs,tcp --set=verbs_devices=rxe9 \
		--peer=transports=verbs,tcp --peer=verbs_devices=rxe1
}
refusal__port_down() {
	ip link set wire0 down
	for _ in {1..50}; do grep -q ACTIVE /sys/class/infiniband/rxe0/ports/1/state || break; done
	refused rxe0 '[Dd]own|DOWN|active' -- "$load" try --set=verbs_devices=rxe0
}
refusal__empty_gid() {
	refused rxe0 7 [Gg][Ii][Dd] -- "$load" try --set=verbs_devices=rxe0 --set=verbs_gid_index=7
}
refusal__link_local_gid() {
	refused rxe0 'link-local' -- "$load" try --set=verbs_devices=rxe0 --set=verbs_gid_index=0
}
# A container that was given no devices: /dev is its own.
refusal__no_device_files() {
	refused '/dev/infiniband is missing' -- unshare -m sh -c '
		mount -t tmpfs none /dev && mkdir /dev/shm && mknod -m 666 /dev/null c 1 3 &&
		mknod -m 666 /dev/zero c 1 5 && mknod -m 666 /dev/urandom c 1 9 && exec "$@"
		' sh "$load" try --set=verbs_devices=rxe0
}
refusal__empty_device_folder() {
	refused 'no RDMA device' '/sys/class/infiniband' -- unshare -m sh -c \
		'mount -t tmpfs none /dev/infiniband && exec "$@"' sh "$load" try --set=verbs_devices=rxe0
}
refusal__no_rights() {
	chmod 600 /dev/infiniband/uverbs*
	refused '/dev/infiniband|rxe0' 'EACCES|rights' -- as_nobody unlimited try --set=verbs_devices=rxe0
	chmod 666 /dev/infiniband/uverbs*
}
refusal__memlock_limit() {
	chmod 666 /dev/infiniband/uverbs*
	refused 'to pin' 'memlock limit 64.0 KiB' 'ulimit -l' -- as_nobody 64 try --set=verbs_devices=rxe0
}
# The same user is served where the limit allows it.
refusal__not_with_enough_memlock() {
	chmod 666 /dev/infiniband/uverbs*
	as_nobody unlimited try --set=verbs_devices=rxe0,rxe2 --peer=verbs_devices=rxe1,rxe3 2>&1 |
		tee "$dir/try.log"
	grep -q 'not refused' "$dir/try.log" || fail "refused"
}
refusal__other_cable() {
	refused rxe3 192.0.2.1 -- "$load" try --set=verbs_devices=rxe0 --peer=verbs_devices=rxe3
}
refusal__peer_without_verbs() {
	refused verbs 'not have it enabled' -- "$load" try --set=verbs_devices=rxe0 --peer=transports=tcp
}
refusal__demo() {
	local out
	out=$("$RELEASE/perf/demo/kvpush-demo" --transport=verbs --requests=1 --skip-w1 --cache-mib=64 \
		--prompt=verbs_devices=rxe9 --decoder=verbs_devices=rxe1 2>&1) && fail "the demo ran"
	grep -q 'rxe9' <<<"$out" || fail "it does not name the device: $out"
}
