#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# hot.sh SCRATCH 'OBJECT...' [GROUP 'OBJECT...']... - undefined symbols of the hot objects are all allowed
#
# hot_allowed.txt holds them by group: [all] for every hot object, [tcp] and [verbs] for the
# objects of those transports in addition.
set -eu
scratch=$1 objects=$2
shift 2
allowed=${HOT_ALLOWED:-tests/lint/hot_allowed.txt}
[ -n "$objects$*" ] || { echo "hot: no hot objects"; exit 1; }

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
[ -z "$objects" ] || refuse "$(undefined "$objects")" "$common" all
while [ $# -ge 2 ]; do
	[ -z "$2" ] || refuse "$(undefined "$objects $2")" "$common $(group "$1")" "$1"
	shift 2
done
exit $rc
