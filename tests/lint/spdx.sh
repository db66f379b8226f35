#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# spdx.sh FILE... - the licence line is the first (the second after #!); nothing unfinished, no stray blanks
rc=0
for file; do
	head -2 "$file" | grep -q '^\(/\*\|#\|//\) SPDX-License-Identifier: Apache-2\.0\( \*/\)\?$' ||
		{ echo "$file: no SPDX line"; rc=1; }
	grep -nE '(^|[^A-Za-z_])(TODO|FIXME|XXX)([^A-Za-z_]|$)' "$file" | grep -v 'lint/spdx' | sed "s|^|$file:|" | grep . &&
		{ echo "spdx: unfinished business belongs into an issue"; rc=1; }
	[ -z "$(tail -c1 "$file")" ] || { echo "$file: no newline at the end"; rc=1; }
	grep -nE '[[:blank:]]$' "$file" | sed "s|^|$file:|" | grep . && { echo "spdx: trailing blanks"; rc=1; }
done
exit $rc
