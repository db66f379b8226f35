#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# kernel-uml.sh CACHE_DIR - build a user-mode kernel with software RDMA from Debian's source
#
# Leaves CACHE_DIR/uml/linux, an ordinary program that is a kernel; does nothing if that is there.
# Takes 4 to 8 minutes and 1.6 GB meanwhile. Debian's own user-mode-linux has no InfiniBand.
set -euo pipefail
cache=$(realpath -m "${1:?usage: kernel-uml.sh CACHE_DIR}")
mkdir -p "$cache"
exec 9>"$cache/lock" && flock 9
[[ -e $cache/uml/linux ]] && exit 0

apt() { DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=300 -qq "$@" >&2; }
work=$(mktemp -d "$cache/tmp.XXXXXX")
trap 'rm -rf "$work"' EXIT
cd "$work"
# The compressed source is only read, so it is fetched without being installed.
fetch() {
	source=$(apt-cache depends linux-source 2>/dev/null | awk '/Depends: linux-source/ && !n++ {print $2}')
	[[ -n $source ]] && apt download "$source" 2>/dev/null
}
echo "machine: building the user-mode kernel in $cache/uml, once; this takes minutes" >&2
fetch || { apt update; fetch; } || { echo "kernel-uml.sh: apt offers no linux-source" >&2; exit 1; }
dpkg-deb --fsys-tarfile linux-source*.deb | tar xO --wildcards '*/linux-source-*.tar.xz' | tar xJ --strip-components=1
rm -f ./*.deb

# Run from make, and this make is not part of that one.
unset MAKEFLAGS MFLAGS MAKELEVEL MAKEOVERRIDES VARIANT CC CFLAGS V B
make ARCH=um allnoconfig >&2
enable=(64BIT MULTIUSER BINFMT_ELF BINFMT_SCRIPT FUTEX EPOLL SIGNALFD TIMERFD EVENTFD AIO SHMEM MEMFD_CREATE
	PROC_FS PROC_SYSCTL SYSFS TMPFS DEVTMPFS UNIX98_PTYS POSIX_TIMERS HIGH_RES_TIMERS POSIX_MQUEUE SYSVIPC PRINTK BUG
	FILE_LOCKING INOTIFY_USER FHANDLE CROSS_MEMORY_ATTACH ADVISE_SYSCALLS MEMBARRIER BLOCK TTY
	STDERR_CONSOLE STDIO_CONSOLE SSL NULL_CHAN HOSTFS OVERLAY_FS
	# rxe depends on PCI, which UML has only by emulation over virtio
	VIRTIO_MENU VIRTIO_UML UML_PCI_OVER_VIRTIO PCI
	NET INET IPV6 UNIX PACKET NETDEVICES NET_CORE VETH DUMMY NAMESPACES NET_NS
	IP_ADVANCED_ROUTER IP_MULTIPLE_TABLES NET_SCHED NET_SCH_NETEM NET_UDP_TUNNEL CONFIGFS_FS
	CRYPTO CRYPTO_CRC32 CRYPTO_CRC32C
	INFINIBAND INFINIBAND_USER_ACCESS INFINIBAND_ADDR_TRANS RDMA_RXE)
printf -- '-e %s ' "${enable[@]}" | xargs ./scripts/config
make ARCH=um olddefconfig >&2
grep -q '^CONFIG_RDMA_RXE=y' .config || { echo "kernel-uml.sh: RDMA_RXE cannot be enabled in $source" >&2; exit 1; }
make ARCH=um -s -j"$(nproc)" linux >"$cache/build-uml.log" 2>&1 || { tail -n 30 "$cache/build-uml.log" >&2; exit 1; }
mkdir -p "$cache/uml"
strip -o "$cache/uml/linux.new" linux
mv "$cache/uml/linux.new" "$cache/uml/linux" # only now is it complete
