#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# cables.sh make|mend - inside the machine: two cables with an RDMA device at each end
#
#   rxe0 wire0 192.0.2.1    ====  192.0.2.2    wire1 rxe1
#   rxe2 wire2 198.51.100.1 ====  198.51.100.2 wire3 rxe3
#
# make  create them
# mend  undo whatever was done to them: netem, links down, addresses and routes lost
#
# rxe does not run in network namespaces (up to Linux 6.12 its sockets belong to the first one), and
# two addresses of one namespace normally talk over lo, where no packet meets a queueing discipline
# or a downed link. So the local routes are told to apply to incoming packets only, between the two
# addresses of a cable: then "tc ... netem", "ip link set" and the counters of wire0..3 do to RDMA
# what they do to any traffic.
set -e
net=(192.0.2 192.0.2 198.51.100 198.51.100)

# All that a fault may have taken from the ends. A handful of processes: each start costs the
# emulated machine 40 ms. Both ends of a cable are up first, or the kernel takes no routes.
mend() {
	local i j me peer mac up='' rest='' gone=''
	for i in 0 1 2 3; do
		j=$((i ^ 1)) me=${net[i]}.$((1 + i % 2)) peer=${net[i]}.$((2 - i % 2))
		read -r mac </sys/class/net/wire$j/address
		gone+="qdisc del dev wire$i root"$'\n'
		up+="link set wire$i mtu 9000 up"$'\n' # room for RoCE's largest path MTU, 4096
		rest+="address replace $me/24 dev wire$i"$'\n'
		# Static, or the first connection would wait a second for ARP.
		rest+="neighbour replace $peer dev wire$i lladdr $mac nud permanent"$'\n'
		rest+="route replace $peer/32 dev wire$i src $me table $((100 + i))"$'\n'
	done
	tc -force -batch - <<<"$gone" 2>/dev/null || true
	ip -batch - <<<"$up$rest"
}

# An address becomes a GID, and a port active, a moment later. Only builtins: they are fast.
await_gids() {
	local i gid state file line
	for i in 0 1 2 3; do
		# shellcheck disable=SC2086  # three numbers
		printf -v gid '0000:0000:0000:0000:0000:ffff:%02x%02x:%02x%02x' ${net[i]//./ } $((1 + i % 2))
		for _ in {1..200}; do
			read -r state </sys/class/infiniband/rxe$i/ports/1/state
			for file in /sys/class/infiniband/rxe$i/ports/1/gids/{0,1,2,3,4,5}; do
				read -r line 2>/dev/null <"$file" || continue
				[[ $line == "$gid" && $state == *ACTIVE ]] && continue 3
			done
			read -rt 0.05 <> <(:) || true
		done
		echo "cables.sh: rxe$i is $state or has no GID for its address" >&2
		exit 1
	done
}

make() {
	local i rules='' wires=''
	[[ ! -e /proc/modules ]] || modprobe -a rdma_rxe rdma_ucm crc32_generic # rxe asks for "crc32" by name
	ip -batch - <<-'END'
		link add wire0 type veth peer name wire1
		link add wire2 type veth peer name wire3
	END
	for i in 0 1 2 3; do
		local me=${net[i]}.$((1 + i % 2)) peer=${net[i]}.$((2 - i % 2))
		echo 1 >/proc/sys/net/ipv4/conf/wire$i/accept_local
		echo 0 >/proc/sys/net/ipv4/conf/wire$i/rp_filter
		# Nor does one cable answer for the other: rails that were paired wrongly shall not work.
		echo 1 >/proc/sys/net/ipv4/conf/wire$i/arp_ignore
		rules+="rule add priority $((10 + i)) iif wire$i lookup local"$'\n'
		rules+="rule add priority $((20 + i)) from $me to $peer lookup $((100 + i))"$'\n'
	done
	echo 0 >/proc/sys/net/ipv4/conf/all/rp_filter
	ip -batch - <<<"${rules}rule add priority 100 lookup local"$'\n'"rule del priority 0"
	mend
	for i in 0 1 2 3; do wires+="link add rxe$i type rxe netdev wire$i"$'\n'; done
	rdma -b - <<<"$wires"
}

case ${1-} in
make | mend) "$1" ;;
*) sed -n '3,8s/^# \?//p' "$0" >&2 && exit 2 ;;
esac
await_gids
