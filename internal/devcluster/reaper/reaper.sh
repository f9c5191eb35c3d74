# Ends what a development cluster leaves behind: waits until its standard input
# closes, which also happens when the process that started the cluster is
# killed, then kills every process with the cluster's mark in its environment,
# unmounts what was mounted below the directory, and removes what is temporary.
# A line on standard input says that there is nothing to do.
# Network namespaces whose names begin with NETWORK, and the bridge of that name
# with a "b", go too; an empty NETWORK is none.
# Arguments: MARK DIR NETWORK REMOVE...
trap '' INT TERM HUP
word=
read -r word || :
[ -z "$word" ] || exit 0
mark=$1 dir=$2 network=$3
shift 3

# A process may be about to start another one, so one empty look is not enough.
quiet=0 round=0
while [ "$quiet" -lt 3 ] && [ "$round" -lt 200 ]; do
  round=$((round + 1))
  pids=$(grep -lsazFx -e "$mark" /proc/[0-9]*/environ | cut -d/ -f3)
  if [ -z "$pids" ]; then
    quiet=$((quiet + 1))
  else
    quiet=0
    # shellcheck disable=SC2086 # one argument per process
    kill -KILL $pids 2>/dev/null
  fi
  sleep 0.05
done
[ -z "$pids" ] || echo "processes left: $pids"

# Deepest first. mountinfo writes a blank as \040; data directories have none.
cut -d' ' -f5 /proc/self/mountinfo | grep -F "$dir/" | sort -r | while read -r mount; do
  umount -l "$mount" || echo "mount left: $mount"
done
if [ -n "$network" ]; then
  ip netns list | cut -d' ' -f1 | grep "^$network" | while read -r space; do
    ip netns del "$space" || echo "network namespace left: $space"
  done
  if [ -e "/sys/class/net/${network}b" ]; then
    ip link del "${network}b" || echo "bridge left: ${network}b"
  fi
fi
for temporary in "$@"; do
  rm -rf "$temporary" || echo "directory left: $temporary"
done
