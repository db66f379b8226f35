#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# glossary.sh README FILE... - the code keeps to the words of the README's glossary
#
# Each word stands once in the glossary, and these others for the same things
# appear neither in names nor in comments of the code.
readme=$1
shift
words=$(sed -n '/^## Glossary/,/^## /s/^| \([a-z]*\) |.*/\1/p' "$readme" | grep -v '^word$')
[ "$(echo "$words" | wc -w)" -ge 10 ] || { echo "glossary: no glossary in $readme"; exit 1; }
rc=0
twice=$(echo "$words" | sort | uniq -d)
[ -z "$twice" ] || { echo "glossary: twice in $readme:" $twice; rc=1; }

instead() { # GLOSSARY_WORD PATTERN FILE...
	word=$1 pattern=$2
	shift 2
	echo "$words" | grep -qx "$word" || { echo "glossary: '$word' is not in the glossary"; rc=1; }
	if grep -nHiE "(^|[^a-z])($pattern)s?([^a-z]|\$)" "$@"; then
		echo "glossary: say '$word'"
		rc=1
	fi
}
instead piece 'chunk|fragment' "$@"
instead lane 'worker' "$@"
instead link 'session' "$@"
instead endpoint 'queue_pair' "$@"
exit $rc
