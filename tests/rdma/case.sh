#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# case.sh NAME - run one case inside the machine, from the top of the tree; see cases.sh for the names
#
# RELEASE and ASAN are the build folders (build/release, build/asan by default).
set -u
: "${RELEASE:=build/release}" "${ASAN:=build/asan}"
export KVP_TEST_TRANSPORTS=${KVP_TEST_TRANSPORTS:-verbs}
export KVP_TEST_VERBS_A=rxe0,rxe2 KVP_TEST_VERBS_B=rxe1,rxe3
prompt=verbs_devices=rxe0,rxe2 decoder=verbs_devices=rxe1,rxe3

demo() {
	"$RELEASE/perf/demo/kvpush-demo" --transport=verbs --generate --skip-w1 --model=llama-3-8b --cache-mib=192 \
		--prompt=$prompt --decoder=$decoder "$@"
}

name=$1
case $name in
integ/*)
	export KVP_TEST_SLOW=${KVP_TEST_SLOW:-2} # emulated processors
	exec "$RELEASE/tests/integ/test_${name#integ/}"
	;;
compat/python)
	export PYTHONDONTWRITEBYTECODE=1 PYTHONPATH=control/python KVPUSH_LIBRARY=$RELEASE/libkvpush.so
	exec python3 tests/compat/test_python.py
	;;
compat/*)
	exec "$RELEASE/tests/compat/test_${name#compat/}"
	;;
asan/*)
	export KVP_TEST_SLOW=${KVP_TEST_SLOW:-4}
	export ASAN_OPTIONS=detect_stack_use_after_return=1:strict_string_checks=1 UBSAN_OPTIONS=print_stacktrace=1
	exec "$ASAN/tests/integ/test_${name#asan/}"
	;;
demo/replay)
	out=$(demo --requests=8 2>&1)
	rc=$?
	echo "$out"
	[[ $rc == 0 && $out == *'every byte right'* && $out == *'path'*'verbs'* ]]
	;;
demo/spoiled-byte) # a check that finds nothing proves nothing
	! demo --requests=2 --flip-byte=0
	;;
*)
	# shellcheck source=tests/rdma/faults.sh
	. tests/rdma/faults.sh
	fault_run "$name"
	;;
esac
