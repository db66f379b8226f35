#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# coverage.sh - a table from the output of `gcov -n` on standard input
exec awk -F"'" '
/^File/ { file = $2 }
/^Lines executed:/ && file ~ /^(engine|dataplane|control)\// {
	split($0, f, /[:% ]+/)
	if (!(file in seen)) { printf "  %6.1f %% of %4d  %s\n", f[3], f[5], file; hit += f[3] * f[5] / 100; all += f[5] }
	seen[file] = 1
}
END { if (!all) exit 1; printf "  %6.1f %% of %4d  all\n", 100 * hit / all, all }'
