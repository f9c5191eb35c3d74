#!/bin/sh
# Ends a node: its client, all that was started by it, and its directory. It may be
# called again, and for a node that was never made.
set -u

# The node's processes: each has the directory in its environment, as start.sh gave
# it to the client, and as a client gives it to its tasks. A number in a file could be
# another process's by now.
processes() {
	grep -lsF -- "$NODE_DIRECTORY/" /proc/[0-9]*/environ | cut -d/ -f3
}

ours() {
	grep -qsF -- "CARAVAN_LOCAL_NODE=$NODE_DIRECTORY/" "/proc/$1/environ"
}

# The client may say goodbye, as a machine that is switched off lets it.
pid=$(cat "$NODE_DIRECTORY/pid" 2>/dev/null)
if [ -n "$pid" ] && ours "$pid"; then
	kill -TERM "$pid" 2>/dev/null
	tries=0
	while [ "$tries" -lt 40 ] && ours "$pid"; do
		sleep 0.05
		tries=$((tries + 1))
	done
fi

# A machine that goes takes everything with it: tasks outlive a client.
tries=0
while left=$(processes) && [ -n "$left" ] && [ "$tries" -lt 50 ]; do
	# shellcheck disable=SC2086
	kill -KILL $left 2>/dev/null
	sleep 0.05
	tries=$((tries + 1))
done
if [ -n "$(processes)" ]; then
	echo "processes of $NODE_NAME cannot be ended:" $(processes) >&2
	exit 1
fi

# What its tasks had mounted is let go first, so that nothing behind it is removed.
grep -F -- " $NODE_DIRECTORY/" /proc/self/mounts | cut -d' ' -f2 | sort -r | while read -r mount; do
	umount -l "$mount"
done
rm -rf "$NODE_DIRECTORY"
