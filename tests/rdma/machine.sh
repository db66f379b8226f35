#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# machine.sh [options] COMMAND - run one command in a small machine whose kernel has software RDMA
#
#   -t SECS  time limit of the command (default 600)
#   -c N     processors (default 2)            -m MIB   memory (default 3072)
#   -e NAME[=VALUE]  environment for the command
#   -u       the user-mode kernel instead of emulation: programs run at full speed, but on one
#            processor (no -c); the first use builds the kernel, which takes minutes
#   -W       without cables and RDMA devices (see cables.sh)
#   -L FILE  keep the kernel's log in FILE
#
# The guest sees the host's whole file system read-only (its own writes go to memory) and the
# top of this tree read-write, so what was built here runs there, at the same path. Standard output and
# error of the command come out as one stream. The exit status is the command's; 124 if it ran out of
# time, 125 if the machine failed. Kernels are kept in $KVP_RDMA_CACHE (default ~/.cache/kvpush-rdma).
set -euo pipefail
here=$(dirname "$(realpath "$0")")
share=$(realpath "$here/../..")
limit=600 cpus=2 memory=3072 wire=1 uml=0 log=''
cache=${KVP_RDMA_CACHE:-${XDG_CACHE_HOME:-${HOME:-/root}/.cache}/kvpush-rdma}
environment=()
while getopts t:c:m:e:WL:u o; do
	case $o in
	t) limit=$OPTARG ;; c) cpus=$OPTARG ;; m) memory=$OPTARG ;;
	e) environment+=("$OPTARG") ;;
	W) wire=0 ;; u) uml=1 ;; L) log=$OPTARG ;; *) exit 125 ;;
	esac
done
shift $((OPTIND - 1))
[[ $# == 1 ]] || { sed -n '3,17s/^# \?//p' "$0" >&2; exit 125; }
cache=$(realpath -m "$cache")
if ((uml)); then "$here/kernel-uml.sh" "$cache"; else "$here/kernel.sh" "$cache"; fi ||
	{ echo "machine: no kernel" >&2; exit 125; }
kernel=$cache/debian

run=$(mktemp -d)
children=()
trap 'kill "${children[@]}" 2>/dev/null || true; rm -rf "$run"' EXIT
trap 'exit 143' INT TERM
mkdir "$run/ctl"

# What the guest reads: its scripts, settings, environment and command. A folder spares all quoting.
cp "$here"/{guest-main,cables.sh,uml-init} "$run/ctl/"
printf '%s\n' "$1" >"$run/ctl/command"
head -c 64 /dev/urandom >"$run/ctl/seed"
printf '%s=%q\n' uml "$uml" share "$share" limit "$limit" wire "$wire" \
	modules "$kernel/lib/modules/$(cat "$kernel/kver" 2>/dev/null)" >"$run/ctl/config"
for e in "${environment[@]}"; do
	[[ $e == *=* ]] || e=$e=${!e-}
	printf 'export %s=%q\n' "${e%%=*}" "${e#*=}"
done >"$run/ctl/environment"

boot_qemu() {
	# The initramfs holds only what it takes to mount the host's root; all else is loaded from there.
	kver=$(<"$kernel/kver")
	mkdir -p "$run/initrd"/{bin,lib,proc,sys,dev}
	cp "$here/guest-init" "$run/initrd/init" && chmod +x "$run/initrd/init"
	cp /bin/busybox "$run/initrd/bin/"
	for m in virtio_pci virtio_console 9pnet_virtio 9p overlay; do
		/sbin/modprobe -d "$kernel" -S "$kver" --show-depends "$m"
	done | awk '$1 == "insmod" && !seen[$2]++ {print $2}' | while read -r ko; do
		name=$(basename "${ko%.xz}")
		case $ko in *.xz) xz -dc "$ko" ;; *) cat "$ko" ;; esac >"$run/initrd/lib/$name"
		echo "$name"
	done >"$run/initrd/modules.list"
	(cd "$run/initrd" && find . | cpio -o -H newc --quiet) >"$run/initrd.cpio"

	# erms,fsrm off: emulation copies "rep movsb" byte by byte, and kernel and libc would use it.
	# mitigations=off: page-table isolation makes each system call flush the emulated TLB.
	# tsc=reliable: else two processors fall back to the HPET, whose every read leaves the guest.
	append="console=ttyS0 quiet panic=-1 oops=panic mitigations=off tsc=reliable clocksource=tsc"
	append+=" nowatchdog no_timer_check rcupdate.rcu_expedited=1 random.trust_cpu=on"
	fs() { echo "-fsdev local,id=$1,path=$2,security_model=none,multidevs=remap$3 -device virtio-9p-pci,fsdev=$1,mount_tag=$1"; }
	ln -s "$share" "$run/share" # a path without blanks or commas for QEMU's option parser
	# shellcheck disable=SC2046  # the words of fs are meant to be split
	exec timeout --kill-after=5 $((limit + 120)) qemu-system-x86_64 \
		-accel tcg,thread=multi -cpu max,-erms,-fsrm -smp "$cpus" -m "$memory" -machine q35 \
		-nodefaults -no-user-config -display none -no-reboot \
		-kernel "$kernel/vmlinux" -initrd "$run/initrd.cpio" -append "$append" \
		-serial file:"$run/console.log" \
		-device virtio-serial-pci -chardev file,id=output,path="$run/output" \
		-device virtserialport,chardev=output,name=output \
		$(fs root / ,readonly=on) $(fs share "$run/share/." "") $(fs ctl "$run/ctl" "") </dev/null
}
boot_uml() { # the log on the first console, the output on the second; its memory is a file in /dev/shm
	# One processor suffices, and saves the moves to and fro that can halve its speed.
	exec taskset -c "$(taskset -cp $BASHPID | grep -o '[0-9]*$')" timeout --kill-after=5 $((limit + 120)) \
		"$cache/uml/linux" mem="${memory}M" uml_dir="$run/" umid=uml \
		root=/dev/root rootfstype=hostfs rootflags=/ ro init="$run/ctl/uml-init" quiet panic=1 \
		con=null con0=null,fd:8 con1=null,fd:9 </dev/null 8>"$run/console.log" 9>"$run/output" >"$run/uml.log" 2>&1
}

# A FIFO and cat, for QEMU would leave our own standard output non-blocking.
mkfifo "$run/output"
cat "$run/output" &
children+=($!)
if ((uml)); then boot_uml; else boot_qemu; fi &
children+=($!)
rc=0
wait "${children[1]}" || rc=$?
[[ -z $log ]] || cp "$run/console.log" "$log" || true
if [[ -s $run/ctl/status ]]; then
	wait "${children[0]}" # the rest of the output
	exit "$(<"$run/ctl/status")"
fi
sleep 1
{
	echo "machine: it ended without a result ($rc); last kernel messages:"
	tail -n 40 "$run/console.log" || true
} >&2
((rc == 124 || rc == 137)) && exit 124
exit 125
