#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# exports.sh LIBRARY MAP ABI HEADER... - headers, version script and library agree
set -eu
library=$1 map=$2 abi=$3
shift 3
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
LC_ALL=C
export LC_ALL

cat "$@" | tr '\n' ' ' | grep -oE 'KVP_API [^;()]*\(' | sed 's/ *($//; s/.*[ *]//' | grep '^kvp_' | sort >"$dir/declared"
sed -n '/^global:/,/^local:/s/^[[:space:]]*\([a-z0-9_]*\);$/\1/p' "$map" | sort >"$dir/mapped"
nm -D --defined-only "$library" | awk '$2 != "A" { sub(/@.*/, "", $3); print $3 }' | sort >"$dir/exported"
[ -s "$dir/declared" ] || { echo "exports: no KVP_API function found in: $*"; exit 1; }

rc=0
same() {
	if ! diff "$dir/$1" "$dir/$2" >"$dir/diff"; then
		echo "exports: '<' only $3, '>' only $4:"
		grep '^[<>]' "$dir/diff"
		rc=1
	fi
}
same declared mapped "in the headers" "in $map"
same declared exported "in the headers" "in $library"

dynamic() {
	readelf -dW "$library" | sed -n "s/.*($1).*\[\(.*\)\]/\1/p"
}
[ "$(dynamic SONAME)" = "libkvpush.so.$abi" ] || { echo "exports: soname is '$(dynamic SONAME)'"; rc=1; }
for needed in $(dynamic NEEDED); do
	case $needed in
	libc.so.6 | libm.so.6 | libnuma.so.1 | libbsd.so.0 | libibverbs.so.1 | libhwloc.so.15 | ld-linux-x86-64.so.2) ;;
	*) echo "exports: $library needs $needed"; rc=1 ;;
	esac
done
readelf -dW "$library" | grep -q 'NODELETE' || { echo "exports: not linked with -z nodelete"; rc=1; }
readelf -dW "$library" | grep -q 'NOW' || { echo "exports: not linked with -z now"; rc=1; }
[ $rc -ne 0 ] || echo "$(wc -l <"$dir/declared") functions"
exit $rc
