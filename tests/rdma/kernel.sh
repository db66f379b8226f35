#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# kernel.sh CACHE_DIR - fetch what machine.sh boots: Debian's kernel, unpacked into a cache folder
#
# Leaves CACHE_DIR/debian/{vmlinux,kver,lib/modules/KVER}; does nothing if that is there. The package
# is unpacked, never installed: the host stays as it is.
set -euo pipefail
cache=$(realpath -m "${1:?usage: kernel.sh CACHE_DIR}")
meta=linux-image-amd64 # not the cloud flavour, which is built without rdma_rxe
dest=$cache/debian
mkdir -p "$cache"
exec 9>"$cache/lock" && flock 9 # two runs may start at once
[[ -e $dest/complete ]] && exit 0

apt() { DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=300 -qq "$@" >&2; }
work=$(mktemp -d "$cache/tmp.XXXXXX")
trap 'rm -rf "$work"' EXIT
cd "$work"
# The metapackage depends on one versioned image. Package lists that are missing or out of date make
# this fail; then fetch them and try once more.
fetch() {
	image=$(apt-cache depends "$meta" 2>/dev/null | awk '/Depends: linux-image/ && !n++ {print $2}')
	[[ -n $image ]] && apt download "$image" 2>/dev/null
}
echo "machine: fetching Debian's kernel (70 MB) into $dest" >&2
fetch || { apt update; fetch; } || { echo "kernel.sh: apt offers no $meta" >&2; exit 1; }

# Everything but the driver families that the machine has no hardware for: half of its 400 MB.
dpkg-deb --fsys-tarfile ./*.deb | tar x --wildcards --exclude '*/kernel/sound' \
	--exclude '*/drivers/gpu' --exclude '*/drivers/media' --exclude '*/drivers/net/wireless' \
	--exclude '*/drivers/scsi' --exclude '*/drivers/net/ethernet' --exclude '*/drivers/usb' \
	--exclude '*/drivers/iio' --exclude '*/drivers/staging' --exclude '*/drivers/input' \
	'./boot/vmlinuz-*' '*/lib/modules/*'
rm -f ./*.deb
[[ -d lib/modules ]] || { mkdir -p lib && mv usr/lib/modules lib/; } # newer packages are usr-merged
kver=$(basename lib/modules/*)
depmod -b . "$kver"

# Take the ELF kernel out of the bzImage: QEMU then enters it directly (PVH), and emulation is spared
# the BIOS and the decompressor, half of the boot time. Offsets: Linux boot protocol.
bz=$(echo boot/vmlinuz-*)
field() { od -An -t"$2" -j $(($1)) -N"${2#u}" "$bz" | tr -d ' '; }
start=$((($(field 0x1f1 u1) + 1) * 512 + $(field 0x248 u4)))
dd if="$bz" of=payload iflag=skip_bytes,count_bytes skip=$start count="$(field 0x24c u4)" status=none
# The payload ends in 4 bytes of length that unpackers complain of, so judge by the result.
case $(od -An -tx1 -N4 payload | tr -d ' ') in
fd377a58) xz -dc <payload >vmlinux 2>/dev/null || true ;;
28b52ffd) zstd -dqc <payload >vmlinux 2>/dev/null || true ;;
1f8b*) gzip -dc <payload >vmlinux 2>/dev/null || true ;;
esac
if [[ $(od -An -tx1 -N4 vmlinux 2>/dev/null | tr -d ' ') != 7f454c46 ]]; then
	cp "$bz" vmlinux # unknown packing: the bzImage boots as well, only slower
fi
echo "$kver" >kver
rm -rf boot usr payload
touch complete
chmod 755 .
rm -rf "$dest" && mv "$work" "$dest"
trap - EXIT
