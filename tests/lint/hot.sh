#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# hot.sh SCRATCH 'OBJECT...' 'TCP_OBJECT...' - undefined symbols of the hot objects are all allowed
#
# hot_allowed.txt holds them by group: [all] for every hot object, [tcp] for the
# objects of the tcp transport in addition. An entry nobody needs is an error too.
set -eu
scratch=$1 objects=$2 tcp_objects=$3
allowed=${HOT_ALLOWED:-tests/lint/hot_allowed.txt}
[ -n "$objects$tcp_objects" ] || { echo "hot: no hot objects"; exit 1; }

undefined() {
	# shellcheck disable=SC2086 # lists of words
	${LD:-ld} -r -o "$scratch" $1
	nm -u "$scratch" | awk '{ print $2 }' | sort -u
}
group() {
	awk -v want="[$1]" '/^\[/ { on = $1 == want; next } /^[^#]/ && on { print $1 }' "$allowed"
}

rc=0
refuse() { # SYMBOLS ALLOWED GROUP
	for symbol in $1; do
		case " $(echo $2) " in
		*" $symbol "*) ;;
		*) echo "hot: '$symbol' is not allowed on the hot path ($3)"; rc=1 ;;
		esac
	done
}
common=$(group all)
first= every=
if [ -n "$objects" ]; then
	first=$(undefined "$objects")
	refuse "$first" "$common" all
fi
every=$(undefined "$objects $tcp_objects")
[ -z "$tcp_objects" ] || refuse "$every" "$common $(group tcp)" tcp
exit $rc
