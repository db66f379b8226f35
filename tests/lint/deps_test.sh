#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# deps_test.sh - .ci/deps against pretended machines: nothing here installs anything
set -eu
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
mkdir "$dir/bin"

# dpkg-query that has every package except those in $LACKS; id and apt-get that obey $UID_IS and $APT_RC.
cat >"$dir/bin/dpkg-query" <<'END'
#!/bin/sh
rc=0
for package; do
	case $package in -*) continue ;; esac
	case " $LACKS " in
	*" $package "*) rc=1 ;;
	*" $package=removed "*) echo "config-files $package" ;;
	*) echo "installed $package" ;;
	esac
done
exit $rc
END
cat >"$dir/bin/id" <<'END'
#!/bin/sh
echo "$UID_IS"
END
cat >"$dir/bin/apt-get" <<'END'
#!/bin/sh
echo "$* frontend=${DEBIAN_FRONTEND:-}" >>"$APT_LOG"
case $1 in update) exit "${UPDATE_RC:-0}" ;; esac
exit "${APT_RC:-0}"
END
chmod +x "$dir"/bin/*
APT_LOG=$dir/apt
export APT_LOG

rc=0
# expect NAME EXIT_CODE ARGUMENTS..., environment given by the caller; output in $dir/out
expect() {
	name=$1 want=$2
	shift 2
	: >"$APT_LOG"
	got=0
	PATH="$dir/bin:$PATH" .ci/deps "$@" >"$dir/out" 2>&1 || got=$?
	[ "$got" -eq "$want" ] || { echo "deps: $name: exit code $got instead of $want"; cat "$dir/out"; rc=1; }
}
has() {
	grep -qe "$2" "$1" || { echo "deps: $name: no '$2' in:"; cat "$1"; rc=1; }
}
lacks() {
	! grep -qe "$2" "$1" || { echo "deps: $name: '$2' in:"; cat "$1"; rc=1; }
}
export LACKS UID_IS APT_RC UPDATE_RC

LACKS='' UID_IS=0 APT_RC=0 UPDATE_RC=0
expect "all there" 0 build test lint fuzz
lacks "$dir/out" .
lacks "$APT_LOG" .

LACKS='libdpdk-dev libcmocka-dev cppcheck'
expect "two missing, root" 0 build test
has "$dir/out" 'libdpdk-dev .*DPDK'
has "$dir/out" 'libcmocka-dev .*test'
lacks "$dir/out" cppcheck
has "$APT_LOG" '^update'
has "$APT_LOG" '^install -y .*--no-install-recommends libdpdk-dev libcmocka-dev frontend=noninteractive$'

expect "not wanted for this purpose" 0 fuzz
lacks "$APT_LOG" .

LACKS='libnuma-dev=removed'
expect "removed, configuration left" 0 build
has "$APT_LOG" '^install .* libnuma-dev '

LACKS='libdpdk-dev libcmocka-dev' UID_IS=1000
expect "no root" 1 build test
has "$dir/out" '^  apt-get update && apt-get install -y --no-install-recommends libdpdk-dev libcmocka-dev$'
lacks "$APT_LOG" .

UID_IS=0 APT_RC=100
expect "apt fails" 1 build
has "$dir/out" '^Could not install: libdpdk-dev$'

APT_RC=0 UPDATE_RC=100
expect "update fails, lists still good" 0 build
has "$APT_LOG" '^install'
[ $rc -ne 0 ] || echo "7 machines"
exit $rc
