#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# command.sh KVPUSH VERSION - what the command prints, and its exit status: 0 usable, 1 not, 2 usage
set -u
kvpush=$1 version=$2
out=$(mktemp) err=$(mktemp)
trap 'rm -f "$out" "$err"' EXIT
rc=0 calls=0

run() { # STATUS WORDS FILE ARGUMENT...: does it end with STATUS and say WORDS in FILE?
	status=$1 words=$2 file=$3 calls=$((calls + 1))
	shift 3
	timeout 60 "$kvpush" "$@" >"$out" 2>"$err" </dev/null
	got=$?
	[ "$got" -eq "$status" ] || { echo "command: '$*' ended with $got, not $status"; cat "$out" "$err"; rc=1; }
	grep -qF -- "$words" "$file" || { echo "command: '$*' does not say '$words':"; cat "$out" "$err"; rc=1; }
}

run 0 "kvpush $version" "$out" --version
run 0 "doctor [KEY=VALUE...]" "$out" --help
run 0 "verbs_devices" "$out" settings
run 0 "usable" "$out" doctor transports=shm,tcp
run 0 "transport tcp: can start" "$out" doctor --explain transports=shm,tcp
run 0 "transports of this build: " "$out" doctor transports=tcp -e
# Quiet about what is in order, unless asked.
run 0 "usable" "$out" doctor transports=tcp
! grep -q "transport tcp" "$out" || { echo "command: doctor says more than it was asked for"; rc=1; }
run 1 "not usable: transport verbs: cannot start: " "$out" doctor transports=verbs,tcp verbs_devices=nosuch9
run 1 "not usable: transport nosuch: not one of this build" "$out" doctor transports=tcp,nosuch
run 2 "Usage:" "$err"
run 2 "there is doctor and settings" "$err" physician
run 2 "lanes 99 is not in [1, 16]" "$err" doctor lanes=99
run 2 "dead_ms 1000 is not above heartbeat_ms 1000" "$err" doctor dead_ms=1000
run 2 "unrecognized option" "$err" doctor --nosuch
[ $rc -ne 0 ] || echo "$calls calls"
exit $rc
