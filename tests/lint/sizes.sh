#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# sizes.sh FILE... - no file over 1000 lines, no function over 70
#
# A function is counted from its opening to its closing brace, both in column 0.
# One that is a table or a single switch may say `lint: long` with a reason in
# the comment above it.
exec awk '
FNR == 1 { if (file != "" && lines > 1000) { print file ": " lines " lines, 1000 are the end"; bad = 1 } start = 0; excused = 0 }
{ file = FILENAME; lines = FNR }
/lint: long/ { excused = 1 }
/^{/ { start = FNR }
/^}/ {
	if (start && FNR - start + 1 > 70 && !excused) {
		print FILENAME ":" start ": function of " FNR - start + 1 " lines, 70 are the limit"; bad = 1
	}
	start = 0; excused = 0
}
END { if (lines > 1000) { print file ": " lines " lines, 1000 are the end"; bad = 1 } exit bad }' "$@" /dev/null
