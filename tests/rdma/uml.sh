#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# uml.sh - inside the user-mode machine: run the lines of uml-cases, one after the other
set -u
: "${TALLY:=build/rdma-uml.tally}" "${LOGS:=build/rdma-uml-log}"
export TALLY LOGS KVP_TEST_TRANSPORTS=verbs KVP_TEST_VERBS_A=rxe0,rxe2 KVP_TEST_VERBS_B=rxe1,rxe3
rm -f "$TALLY"
while read -r -u 3 limit how command; do
	case $limit in '' | '#'*) continue ;; esac
	# A program that is not there yet, or that nobody has built, is no failure.
	[[ $command != build/* || -x ${command%% *} ]] || continue
	rm -rf "$LOGS"
	tests/lint/run.sh "$limit" "$command"
	[[ $how != show ]] || cat "$LOGS"/*.log
done 3<tests/rdma/uml-cases
exec tests/lint/tally.sh 'rdma-uml: ' "$TALLY"
