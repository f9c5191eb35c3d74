#!/bin/sh
# Stands between us and Terraform: an apply goes on when we are killed. Terraform
# keeps what it has made in memory until the end, so one that is killed with us would
# leave machines that nobody knows of. Its output goes to a file, since nobody may be
# there to read it; all other commands are run as they are.
if [ "$1" != apply ]; then
	exec "$CARAVAN_TERRAFORM" "$@"
fi
"$CARAVAN_TERRAFORM" "$@" >"$CARAVAN_OUTPUT" 2>&1 </dev/null &
pid=$!
trap 'kill -INT "$pid"' INT TERM
while :; do
	wait "$pid"
	code=$?
	kill -0 "$pid" 2>/dev/null || break
done
cat "$CARAVAN_OUTPUT"
exit "$code"
