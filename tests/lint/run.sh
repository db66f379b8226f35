#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# run.sh TIMEOUT_S COMMAND... - run each command line, one after the other
#
# Counts go to $TALLY as "<passed> <failed> <skipped> <command>", output to
# $LOGS, and on the screen only when something failed. A cmocka program counts
# as its cases, any other as one; exit code 77 means skipped. Always exits 0:
# tally.sh judges.
limit_s=$1
shift
mkdir -p "$LOGS" "$(dirname "$TALLY")"
: >>"$TALLY"

# Sum of the numbers in cmocka's summary lines "[  <word>  ] <n> test(s)".
sum() {
	sed -n "s/^\[  $1 *\] \([0-9][0-9]*\) test(s).*/\1/p" "$log" | awk '{ n += $1 } END { print n + 0 }'
}

for command; do
	name=$(printf %s "$command" | sed -e 's/^ *//' -e 's/^tests.rdma.case.sh //' -e 's/^setarch -R //' -e 's/.*VARIANT=[a-z]* //')
	log=$LOGS/$(printf %s "${name#build/*/}" | tr -c 'A-Za-z0-9_.-' '_').log
	begin=$(date +%s%N)
	timeout -k 5 "$limit_s" sh -c "exec $command" >"$log" 2>&1 </dev/null
	rc=$?
	ms=$((($(date +%s%N) - begin) / 1000000))
	passed=$(sum PASSED)
	failed=$(sum FAILED)
	skipped=$(sum SKIPPED)
	if [ $rc -eq 77 ] && [ "$failed" -eq 0 ]; then
		[ "$skipped" -gt 0 ] || skipped=1
		word=SKIP
	elif [ $rc -ne 0 ] || [ "$failed" -gt 0 ]; then
		[ "$failed" -gt 0 ] || failed=1
		word="FAIL($rc)"
	else
		[ $((passed + skipped)) -gt 0 ] || passed=1
		word=PASS
	fi
	printf '  %-8s %4d  %6d ms  %s\n' "$word" $((passed + failed + skipped)) $ms "$name"
	case $word in
	SKIP) grep -v '^\[' "$log" | tail -1 | sed 's/^/             /' ;;
	FAIL*)
		[ $rc -ne 124 ] || echo "             killed after $limit_s s"
		# Without the cases that passed.
		awk '/^\[ RUN/ { held = held $0 "\n"; next } /^\[       OK/ { held = ""; next }
			{ printf "%s", held; held = ""; print } END { printf "%s", held }' "$log" | sed 's/^/    | /'
		;;
	esac
	printf '%d %d %d %s\n' "$passed" "$failed" "$skipped" "$name" >>"$TALLY"
done
exit 0
