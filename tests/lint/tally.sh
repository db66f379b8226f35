#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# tally.sh PREFIX FILE - the closing line of a run; fails when a test failed or none ran
exec awk -v prefix="$1" '
{ passed += $1; failed += $2; skipped += $3 }
$2 > 0 { sub(/^[0-9]+ [0-9]+ [0-9]+ /, ""); print "  failed: " $0 }
END {
	printf "%s%d passed, %d failed, %d skipped\n", prefix, passed, failed, skipped
	exit failed > 0 || passed == 0
}' "$2"
