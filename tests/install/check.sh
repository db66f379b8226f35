#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# check.sh - install below temporary roots, use what is there, uninstall, look for leftovers
set -eu
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
make=${MAKE:-make} cc=${CC:-cc} clang=${CLANG:-clang-14} pkg_config=${PKG_CONFIG:-pkg-config}
version=$(sed -n 's/^VERSION := //p' Makefile)
log=$dir/log

say() {
	printf '  %-8s %s\n' INSTALL "$1"
}
run_make() {
	$make --no-print-directory "$@" >"$log" 2>&1 || { cat "$log"; exit 1; }
}
before=$(git status --porcelain 2>/dev/null || true)

# 1. A packager's way: DESTDIR and a libdir of his own; the .pc must not know DESTDIR.
root=$dir/root
run_make install DESTDIR="$root" prefix=/usr libdir=/usr/lib/x86_64-linux-gnu
find "$root" ! -type d | sed "s|^$root||" | sort >"$dir/installed"
{
	ls include/kvpush/*.h include/llm_datadist/*.h | sed 's|^include|/usr/include|'
	for suffix in "" .0 ".$version"; do echo "/usr/lib/x86_64-linux-gnu/libkvpush.so$suffix"; done
	echo /usr/lib/x86_64-linux-gnu/pkgconfig/kvpush.pc
	echo /usr/bin/kvpush
	ls control/python/kvpush/*.py control/python/kvpush/py.typed | sed 's|^control/python|/usr/lib/python3/dist-packages|'
} | sort >"$dir/expected"
diff "$dir/expected" "$dir/installed" || { echo "install: '<' was expected, '>' is there"; exit 1; }
! grep -n "$dir" "$root/usr/lib/x86_64-linux-gnu/pkgconfig/kvpush.pc" || { echo "install: DESTDIR in the .pc"; exit 1; }
tests/lint/exports.sh "$root/usr/lib/x86_64-linux-gnu/libkvpush.so" control/kvpush.map 0 "$root"/usr/include/kvpush/*.h >"$log" ||
	{ cat "$log"; exit 1; }
run_make uninstall DESTDIR="$root" prefix=/usr libdir=/usr/lib/x86_64-linux-gnu
find "$root" ! -type d | grep . && { echo "uninstall: left behind"; exit 1; }
for left in include/kvpush include/llm_datadist lib/python3/dist-packages/kvpush; do
	[ ! -e "$root/usr/$left" ] || { echo "uninstall: left /usr/$left behind"; exit 1; }
done
say "DESTDIR, libdir: $(wc -l <"$dir/installed") files, none left by uninstall"

# 2. A user's way: a prefix, then pkg-config.
prefix=$dir/local
run_make install prefix="$prefix"
PKG_CONFIG_PATH=$prefix/lib/pkgconfig
export PKG_CONFIG_PATH
[ "$($pkg_config --modversion kvpush)" = "$version" ] || { echo "install: .pc has another version"; exit 1; }
# shellcheck disable=SC2046 # flags are words
$cc -std=c11 -Wall -Wextra -Wpedantic -Werror $($pkg_config --cflags kvpush) -o "$dir/example" \
	tests/install/example.c $($pkg_config --libs kvpush)
LD_LIBRARY_PATH=$prefix/lib timeout 60 "$dir/example" "$version" >"$log" 2>&1 || { cat "$log"; exit 1; }
say "C11 program: $(cat "$log")"
echo '#include <kvpush/kvpush.h>
int main() { struct kvp_config c; kvp_config_init(&c); return c.size == sizeof(c) ? 0 : 1; }' >"$dir/example.cc"
# shellcheck disable=SC2046
$cc -x c++ -std=c++17 -Wall -Wextra -Wpedantic -Werror $($pkg_config --cflags kvpush) -o "$dir/examplecc" \
	"$dir/example.cc" $($pkg_config --libs kvpush)
LD_LIBRARY_PATH=$prefix/lib "$dir/examplecc" || { echo "install: the C++ program sees another struct kvp_config"; exit 1; }
say "C++17 program"
# A user of LLM-DataDist: both compilers, two translation units, nothing but an include path and a library.
for cxx in "g++" "$(echo "$clang" | sed 's/^clang/clang++/')"; do
	# shellcheck disable=SC2046
	$cxx -std=c++17 -Wall -Wextra -Werror -ftrapv $($pkg_config --cflags kvpush) -o "$dir/datadist" \
		tests/install/datadist.cc tests/install/datadist_more.cc $($pkg_config --libs kvpush)
	LD_LIBRARY_PATH=$prefix/lib timeout 60 "$dir/datadist" >"$log" 2>&1 || { cat "$log"; exit 1; }
	say "LLM-DataDist program, $cxx: $(tail -1 "$log")"
done
packages=$(echo "$prefix"/lib/python3*/dist-packages)
PYTHONPATH=$packages timeout 60 ${PYTHON:-python3} tests/install/example.py "$version" >"$log" 2>&1 || { cat "$log"; exit 1; }
say "Python program: $(tail -1 "$log")"
tests/install/command.sh "$prefix/bin/kvpush" "$version" >"$log" || { cat "$log"; exit 1; }
say "command: $(cat "$log")"
run_make uninstall prefix="$prefix"
find "$prefix" ! -type d | grep . && { echo "uninstall: left behind"; exit 1; }

after=$(git status --porcelain 2>/dev/null || true)
[ "$before" = "$after" ] || { echo "install: changed the source tree"; exit 1; }
echo "check-install: 7 passed, 0 failed"
