#!/usr/bin/env bash
# Makes sure that the dashboard's tests find a Chromium, and prints where it is.
#
# Two checkouts may do this at the same time, and so may the system's own updates. apt-get fails at once if another one
# runs, so this waits for it: up to HOLDBEAT_APT_WAIT_S seconds (300), with a message.
set -euo pipefail

WAIT_S="${HOLDBEAT_APT_WAIT_S:-300}"
# One installation at a time for all checkouts of this account. apt's own locks are its business.
LOCK="${HOLDBEAT_APT_LOCK:-${TMPDIR:-/tmp}/holdbeat-apt-$(id -u).lock}"

find_chromium() {
    if [ -n "${HOLDBEAT_CHROMIUM:-}" ]; then
        [ -x "$HOLDBEAT_CHROMIUM" ] && echo "$HOLDBEAT_CHROMIUM" && return
        echo "HOLDBEAT_CHROMIUM is $HOLDBEAT_CHROMIUM, which cannot be run." >&2
        exit 1
    fi
    command -v chromium || command -v chromium-browser || command -v google-chrome
}

# Takes our own lock, on file descriptor 9, and keeps it until this script ends.
take_lock() {
    exec 9>>"$LOCK"
    flock -n 9 && return
    echo "Another make installs Chromium: waiting up to $WAIT_S s for it." >&2
    flock -w "$WAIT_S" 9
}

# `apt-get update` does not wait for its lock, whatever DPkg::Lock::Timeout says, so it is tried again. The error of
# a lock is told from others by its text.
apt_get() {
    local output deadline=$((SECONDS + WAIT_S)) told=
    until output=$(apt-get -o DPkg::Lock::Timeout="$WAIT_S" "$@" 2>&1 9>&-); do
        if ! grep -q "Could not get lock\|Unable to lock" <<<"$output" || [ "$SECONDS" -ge "$deadline" ]; then
            echo "$output" >&2
            return 1
        fi
        [ -n "$told" ] || echo "Another apt-get runs: waiting up to $WAIT_S s for it." >&2
        told=yes
        sleep 1
    done
}

install_chromium() {
    echo "No Chromium here: installing the Debian package." >&2
    export LC_ALL=C DEBIAN_FRONTEND=noninteractive
    apt_get update -qq && apt_get install -y -qq --no-install-recommends chromium
}

find_chromium && exit 0

if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    if take_lock; then
        # Whoever had the lock may have installed it.
        find_chromium && exit 0
        install_chromium && find_chromium && exit 0
    else
        echo "The other installation has not ended within $WAIT_S s." >&2
    fi
fi

cat >&2 <<'TEXT'
The tests of the dashboard need a Chromium, and none could be found or installed. Do one of these, then try again:
  - Debian, Ubuntu:  sudo apt-get install chromium
  - anywhere else:   install Chromium or Chrome and set HOLDBEAT_CHROMIUM to its program
TEXT
exit 1
