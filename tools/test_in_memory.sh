#!/usr/bin/env bash
# Runs a pytest command with its temporary files in memory, where the machine has enough of it, and as it is elsewhere.
# The stores of the tests commit thousands of times, and each commit waits for the disk. The tests kill processes, not
# the machine, and what a killed process has written stays in memory as it stays on a disk.
# Usage: tools/test_in_memory.sh python -m pytest ...
set -u

NEEDED_KB=4000000
memory=/dev/shm
available=$(df --output=avail -k "$memory" 2>/dev/null | tail -n 1)
free=$(awk '/^MemAvailable/ { print $2 }' /proc/meminfo 2>/dev/null)
if [ "${available:-0}" -lt "$NEEDED_KB" ] || [ "${free:-0}" -lt "$NEEDED_KB" ] || ! scratch=$(mktemp -d "$memory/hbXXXX"); then
    exec "$@"
fi
trap 'rm -rf "$scratch"' EXIT
# PostgreSQL runs under another account if root runs the tests.
chmod 755 "$scratch"
printf '#!/bin/sh\n' > "$scratch/program"
chmod +x "$scratch/program"
if ! "$scratch/program" 2>/dev/null; then
    rm -rf "$scratch"
    exec "$@"
fi
# A short path: the sockets of the tests lie below it.
TMPDIR=$scratch "$@" --basetemp="$scratch/t"
