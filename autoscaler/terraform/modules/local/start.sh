#!/bin/sh
# Starts the client of a node in a session of its own and notes its process. It is
# told what to do by NODE_* variables; see main.tf. It may be called again for a node:
# one that lives, and is what is asked for, is taken over.
set -eu

if [ -n "$NODE_FAIL" ]; then
	echo "$NODE_FAIL" >&2
	exit 1
fi
# What an apply that was killed has left: the node that was asked for, or what has to
# go before it is made anew.
asked="$NODE_CLIENT
$NODE_META"
pid=$(cat "$NODE_DIRECTORY/pid" 2>/dev/null || true)
if [ -n "$pid" ] && [ "$asked" = "$(cat "$NODE_DIRECTORY/begun" 2>/dev/null)" ] &&
	grep -qsF -- "CARAVAN_LOCAL_NODE=$NODE_DIRECTORY/" "/proc/$pid/environ"; then
	echo "node $NODE_NAME lives as process $pid, and is taken over"
	exit 0
fi
/bin/sh "$(dirname "$0")/stop.sh"
mkdir -p "$NODE_DIRECTORY"
printf '%s\n' "$asked" >"$NODE_DIRECTORY/begun"

newline='
'
old_ifs=$IFS
IFS=$newline
set -f
set --
for word in $NODE_CLIENT; do set -- "$@" "$word"; done
set -- "$@" "-node=$NODE_NAME" "-data-dir=$NODE_DIRECTORY/data"
for pair in $NODE_META; do set -- "$@" -meta "$pair"; done
IFS=$old_ifs

# The process is to outlive this apply, so it must not carry its mark. It writes its
# own number before it becomes the client: there is no moment at which it runs and
# is not known.
unset TF_APPEND_USER_AGENT
export CARAVAN_LOCAL_NODE="$NODE_DIRECTORY/"
setsid sh -c '
	echo $$ >"$0/pid.new"
	mv "$0/pid.new" "$0/pid"
	sleep "$1"
	shift
	exec "$@"
' "$NODE_DIRECTORY" "$NODE_DELAY" "$@" </dev/null >"$NODE_DIRECTORY/log" 2>&1 &

tries=0
until [ -e "$NODE_DIRECTORY/pid" ]; do
	tries=$((tries + 1))
	if [ "$tries" -gt 200 ]; then
		echo "the client of $NODE_NAME did not start" >&2
		exit 1
	fi
	sleep 0.05
done
