# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# faults.sh - for case.sh: what is broken while two processes are linked over verbs
#
# One function per case, <group>__<name>; the case is called <group>/<name>, with hyphens. Each
# starts a load (load.h), breaks something, and looks at both processes' exit statuses and at the
# counters of the wires. Logs are printed only when a case fails.
load=$RELEASE/tests/rdma/load
cables=tests/rdma/cables.sh
sender='' receiver='' dir=''
. tests/rdma/refusals.sh

fault_run() {
	local function=${1//-/_}
	function=${function/\//__}
	declare -F "$function" >/dev/null || { echo "case.sh: there is no case $1"; exit 2; }
	dir=$(mktemp -d)
	trap fault_end EXIT
	"$function"
	is_as_before
}

# Whatever happened: no process left, cables whole, logs shown when it went wrong.
fault_end() {
	local rc=$?
	trap - EXIT
	# shellcheck disable=SC2046,SC2086  # pids, or none
	kill -KILL $sender $receiver $(jobs -p) 2>/dev/null
	wait 2>/dev/null
	$cables mend || rc=1
	if ((rc != 0)); then
		for log in "$dir"/*.log; do [[ -s $log ]] && echo "-- ${log##*/}" && tail -n 40 "$log"; done
		rdma link
	fi
	rm -rf "$dir"
	exit $rc
}

fail() {
	echo "$*"
	exit 1
}

# The devices' objects are those that there were before the first case: nothing is left in the kernel.
is_as_before() {
	local now
	for _ in {1..50}; do
		now=$(rdma resource show)
		[[ $now == "$(</run/resources)" ]] && return
		pause 0.1
	done
	echo "$now" | diff /run/resources - || fail "RDMA objects are left over"
}

# start RAILS RECEIVER_OPTIONS SENDER_OPTIONS: both processes, and wait until bytes move. $both is for both.
both='--slots=4'
start() {
	local a=rxe0 b=rxe1
	[[ $1 == 1 ]] || a=rxe0,rxe2 b=rxe1,rxe3
	# shellcheck disable=SC2086  # options are words
	$load receive --meet="$dir/meet" --set=verbs_devices=$b --set=heartbeat_ms=300 --set=dead_ms=3000 $both $2 \
		>"$dir/receiver.log" 2>&1 &
	receiver=$!
	# shellcheck disable=SC2086
	$load send --meet="$dir/meet" --set=verbs_devices=$a --set=heartbeat_ms=300 --set=dead_ms=3000 $both \
		--status="$dir/status" $3 \
		>"$dir/sender.log" 2>&1 &
	sender=$!
	moves 20 20
}

# pause SECONDS: as sleep, which costs a process: 40 ms here
exec 9<> <(:)
pause() { read -rt "$1" -u 9 || true; }

# How many transfers have ended well so far (ok), or otherwise, in $counted: no process for that either.
count() {
	local line=''
	read -r line 2>/dev/null <"$dir/status"
	counted=0
	[[ " $line" =~ \ $1=([0-9]+) ]] && counted=${BASH_REMATCH[1]}
	return 0
}

# moves N SECONDS: N more transfers end well in this time
moves() {
	local first end=$((SECONDS + $2))
	count ok
	first=$counted
	while count ok && ((counted < first + $1)); do
		((SECONDS <= end)) || fail "fewer than $1 transfers ended well in $2 s"
		kill -0 $sender 2>/dev/null || fail "the sender ended early"
		pause 0.1
	done
}

# carries WIRE N SECONDS: it sends N packets in this time
carries() {
	local first now file=/sys/class/net/wire$1/statistics/tx_packets end=$((SECONDS + $3))
	read -r first <"$file"
	while read -r now <"$file" && ((now < first + $2)); do
		((SECONDS <= end)) || fail "wire$1 sent $((now - first)) packets in $3 s, not $2"
		pause 0.1
	done
}

# Wait until a line that matches is in a log.
says() {
	for _ in {1..300}; do
		grep -qE "$2" "$dir/$1.log" && return
		pause 0.1
	done
	fail "no '$2' in $1.log after 30 s"
}

# objects KIND END: how many queue pairs (qp), memory regions (mr) ... the devices of a side have, in
# $counted. rxe0 and rxe2 are the sender's.
objects() {
	local device rest parity=1
	[[ $2 != sender ]] || parity=0
	counted=0
	while read -r _ device rest; do
		[[ ${device//[a-z:]/} == *[02468] ]] && ((parity == 1)) && continue
		[[ ${device//[a-z:]/} == *[13579] ]] && ((parity == 0)) && continue
		[[ " $rest" =~ \ $1\ ([0-9]+) ]] && counted=$((counted + BASH_REMATCH[1]))
	done < <(rdma resource show)
}
settles() { # KIND END NUMBER
	for _ in {1..80}; do
		objects "$1" "$2"
		((counted == $3)) && return
		pause 0.1
	done
	fail "the $2 has $counted ${1}s, not $3 as before"
}

ends_well() { # PID NAME
	wait "$1"
	local rc=$?
	((rc == 0)) || fail "the $2's exit status is $rc"
}
# End the load; both sides must be content.
finish() {
	kill -TERM $sender
	ends_well $sender sender
	ends_well $receiver receiver
	sender='' receiver=''
}

netem() { # WIRES WHAT...
	local wires=$1 i
	shift
	for i in $wires; do tc qdisc replace dev wire"$i" root netem "$@" || fail "netem $*"; done
}

# --- a rail of two, or the only one, goes away under load and comes back -------------------------

# two_rails COMMAND...: takes away the first cable; the second one carries on, then both do
two_rails() {
	start 2 '' '--seconds=80 --timeout=20000'
	local qps
	carries 0 50 10
	carries 2 50 10
	objects qp sender
	qps=$counted
	"$@"
	moves 30 12
	carries 2 50 5
	pause 1
	moves 10 12
	$cables mend
	carries 0 200 30 # back in service: more than a probe
	moves 20 12
	settles qp sender "$qps"
	finish
}
# one_rail COMMAND...: transfers wait for the rail inside their deadline
one_rail() {
	start 1 '' '--seconds=80 --timeout=30000'
	"$@"
	pause 4 # longer than the device tries by itself
	$cables mend
	moves 30 25
	finish
}
lose() { netem "$1" loss 100%; }
down() { ip link set wire"$1" down; }
# The address of an end: its GID goes, and may come back at another index.
take_address() { ip address flush dev wire"$1" to "$2"; }

rail__loss_of_two() { two_rails lose '0 1'; }
rail__lost_acknowledgements_of_two() { two_rails lose 1; }
rail__down_of_two() { two_rails down 0; }
rail__peer_down_of_two() { two_rails down 1; }
rail__address_of_two() { two_rails take_address 0 192.0.2.0/24; }
rail__peer_address_of_two() { two_rails take_address 1 192.0.2.0/24; }
rail__loss_of_one() { one_rail lose '0 1'; }
rail__down_of_one() { one_rail down 0; }
rail__address_of_one() { one_rail take_address 0 192.0.2.0/24; }

# Out of time without a rail; the link stays, and works when the rail is back.
rail__one_gone_past_the_deadline() {
	start 1 '' '--seconds=80 --timeout=1500 --expect=recover'
	lose '0 1'
	pause 5
	count timeout
	((counted > 0)) || fail "no transfer timed out"
	$cables mend
	moves 30 25
	finish
}
# Out of time while the wire still holds what was sent: it arrives when the blocks are somebody else's. Only the
# receiver's fence keeps it from landing.
rail__packets_later_than_the_deadline() {
	start 1 --set=verbs_timeout=18 '--seconds=80 --timeout=500 --expect=recover --set=verbs_timeout=18'
	netem 0 delay 620ms
	pause 6
	count timeout
	((counted > 0)) || fail "no transfer timed out"
	$cables mend
	moves 30 25
	finish
}
rail__both_gone_for_a_while() {
	start 2 '' '--seconds=80 --timeout=30000'
	lose '0 1 2 3'
	pause 4
	$cables mend
	moves 30 25
	carries 0 100 20
	carries 2 100 20
	finish
}
rail__one_after_the_other() {
	start 2 '' '--seconds=80 --timeout=20000'
	lose '0 1'
	moves 10 12
	$cables mend
	carries 0 200 30
	down 2
	moves 10 12
	$cables mend
	carries 2 200 30
	finish
}

# --- a wire that is merely bad ---------------------------------------------------------------------

bad_wire() {
	both='--slots=4 --blocks=4'
	start 2 '' '--seconds=80 --timeout=30000'
	netem '0 1 2 3' "$@"
	moves 20 40
	finish
}
wire__loses_some() { bad_wire loss 1%; }
wire__delays() { bad_wire delay 3ms; }
wire__reorders_and_doubles() { bad_wire delay 1ms reorder 75% duplicate 5%; }
wire__corrupts() { bad_wire corrupt 1%; }

# --- the other process dies or stops --------------------------------------------------------------

dead__killed_sender() {
	both=--slots=8
	start 2 '--expect=lost' '--seconds=80'
	kill -KILL $sender
	ends_well $receiver receiver
	receiver=''
}
dead__killed_receiver() {
	both=--slots=8
	start 2 '' '--expect=lost --seconds=80'
	kill -KILL $receiver
	ends_well $sender sender
	sender=''
}
# What it still had to write when it was stopped meets canaries when it goes on.
dead__stopped_sender() {
	start 2 '--expect=lost' '--expect=lost --seconds=80'
	kill -STOP $sender
	says receiver 'the peer is lost'
	kill -CONT $sender
	ends_well $receiver receiver
	ends_well $sender sender
	sender='' receiver=''
}
dead__stopped_receiver() {
	start 2 '--expect=lost' '--expect=lost --seconds=80'
	kill -STOP $receiver
	ends_well $sender sender
	kill -CONT $receiver
	ends_well $receiver receiver
	sender='' receiver=''
}
# Shorter than the peer is given: nobody notices, nothing is lost.
dead__paused_receiver() {
	start 2 '' '--seconds=80 --timeout=20000'
	for _ in 1 2 3; do
		kill -STOP $receiver
		pause 0.7
		kill -CONT $receiver
		moves 5 12
	done
	finish
}

# --- caches released under load ---------------------------------------------------------------------

release__destination() {
	both=--slots=8
	start 2 '--release=400' '--seconds=80 --expect=recover'
	releases receiver
}
release__source() {
	both=--slots=8
	start 2 '' '--seconds=80 --expect=recover --release=400'
	releases sender
}
# Some transfers meet a release, and as many memory regions and queue pairs are there afterwards.
releases() { # END
	local mrs=0 qps
	objects qp "$1"
	qps=$counted
	for _ in {1..8}; do # between release and register there are fewer
		objects mr "$1"
		((counted <= mrs)) || mrs=$counted
	done
	for _ in {1..150}; do
		pause 0.1
		count gone
		((counted >= 5)) && break
	done
	((counted > 0)) || fail "no transfer met a release"
	settles mr "$1" "$mrs"
	settles qp "$1" "$qps"
	finish
	grep -qE '^(received|sent) .*releases=([2-9]|[1-9][0-9])' "$dir/$1.log" || fail "fewer than two releases"
}

# --- what a closed engine leaves behind -------------------------------------------------------------

closed__engine_has_no_objects() {
	local kind end kinds='qp mr pd cq' before=()
	for end in sender receiver; do
		for kind in $kinds; do objects "$kind" $end; before+=("$kind $end $counted"); done
	done
	start 2 --linger '--linger --seconds=80'
	for kind in "${before[@]}"; do
		# shellcheck disable=SC2086  # three words
		set -- $kind
		objects "$1" "$2"
		((counted > $3)) || fail "the $2 has no $1 to begin with"
	done
	kill -TERM $sender
	says sender closed
	says receiver closed
	# shellcheck disable=SC2086  # three words
	for kind in "${before[@]}"; do settles $kind; done
	kill -TERM $receiver
	finish
}

# The last case.
machine__is_as_before() {
	is_as_before
	! dmesg | grep -E 'WARNING:|BUG:|Oops|refcount' || fail "the kernel complained"
}
