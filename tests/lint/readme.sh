#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# readme.sh README BUILD - the README's C program compiles, runs and prints the block after "It prints"
set -eu
readme=$1 build=$2
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT

block() { # INFO_STRING: content of the first fenced block with it
	awk -v fence="\`\`\`$1" '$0 == fence && !done { on = 1; next } /^```$/ { if (on) done = 1; on = 0 } on' "$readme"
}
block c >"$dir/example.c"
block text >"$dir/expected"
[ -s "$dir/example.c" ] || { echo "readme: no C block in $readme"; exit 1; }
[ -s "$dir/expected" ] || { echo "readme: no text block with its output in $readme"; exit 1; }

${CC:-cc} -std=c11 -Wall -Wextra -Wpedantic -Werror -Iinclude -o "$dir/example" "$dir/example.c" -L"$build" -lkvpush
LD_LIBRARY_PATH=$build timeout 60 "$dir/example" >"$dir/printed" ||
	{ echo "readme: the example failed with code $?"; cat "$dir/printed"; exit 1; }
diff "$dir/expected" "$dir/printed" || { echo "readme: '<' is what the README says, '>' what was printed"; exit 1; }
