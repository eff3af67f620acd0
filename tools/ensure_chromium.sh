#!/usr/bin/env bash
# Makes sure that the dashboard's tests find a Chromium, and prints where it is.
set -euo pipefail

find_chromium() {
    if [ -n "${HOLDBEAT_CHROMIUM:-}" ]; then
        [ -x "$HOLDBEAT_CHROMIUM" ] && echo "$HOLDBEAT_CHROMIUM" && return
        echo "HOLDBEAT_CHROMIUM is $HOLDBEAT_CHROMIUM, which cannot be run." >&2
        exit 1
    fi
    command -v chromium || command -v chromium-browser || command -v google-chrome
}

find_chromium && exit 0

if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    echo "No Chromium here: installing the Debian package." >&2
    export DEBIAN_FRONTEND=noninteractive
    if { apt-get update -qq && apt-get install -y -qq --no-install-recommends chromium; } >&2; then
        find_chromium && exit 0
    fi
fi

cat >&2 <<'TEXT'
The tests of the dashboard need a Chromium, and none could be found or installed. Do one of these, then try again:
  - Debian, Ubuntu:  sudo apt-get install chromium
  - anywhere else:   install Chromium or Chrome and set HOLDBEAT_CHROMIUM to its program
TEXT
exit 1
