#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# cases.sh - inside the machine: run the cases whose names match $CASES, or all, one after the other
#
# Patterns are the shell's, as integ/* or rail/loss-*. The counts go to $TALLY; tally.sh judges.
set -u
: "${RELEASE:=build/release}" "${ASAN:=build/asan}" "${TALLY:=build/rdma.tally}" "${LOGS:=build/rdma-log}" "${CASES:=}"
export RELEASE ASAN TALLY LOGS

# Name and limit in seconds of every case, in order.
list() {
	local program
	for program in "$RELEASE"/tests/integ/test_*; do
		[[ -x $program && ${program##*/} != *.* ]] && echo "integ/${program##*/test_} 150"
	done
	for program in "$RELEASE"/tests/compat/test_*; do
		[[ -x $program && ${program##*/} != *.* ]] && echo "compat/${program##*/test_} 150"
	done
	echo compat/python 150
	echo demo/replay 120
	echo demo/spoiled-byte 60
	# shellcheck source=tests/rdma/faults.sh
	sed -n 's/^\([a-z]*\)__\([a-z_]*\)() {.*/\1\/\2/p' tests/rdma/faults.sh tests/rdma/refusals.sh |
		while read -r name; do [[ $name == machine/* ]] || echo "${name//_/-} 90"; done
	# Twice as slow again: all of them only when they are asked for.
	for program in "$ASAN"/tests/integ/test_*; do
		[[ -x $program && ${program##*/} != *.* ]] || continue
		case ${CASES:+all}${program##*/test_} in
		all* | push | ranges | rights | processes | bad_input | bad_peer) echo "asan/${program##*/test_} 300" ;;
		esac
	done
	echo machine/is-as-before 30
}

is_wanted() {
	[[ -n $CASES ]] || return 0
	local pattern
	for pattern in $CASES; do
		# shellcheck disable=SC2053  # a pattern it is
		[[ $1 == $pattern ]] && return 0
	done
	return 1
}

rm -f "$TALLY"
rdma resource show >/run/resources # what case.sh looks for again afterwards
all=$(list)
set -f # patterns are for names, not for files
while read -r -u 3 name limit; do
	is_wanted "$name" || continue
	tests/lint/run.sh "$limit" "tests/rdma/case.sh $name"
done 3<<<"$all"
[[ -s $TALLY ]] || { echo "cases.sh: no case is called ${CASES:-anything}"; exit 1; }
exec tests/lint/tally.sh 'rdma: ' "$TALLY"
