# Ends what a cluster leaves behind: waits until its standard input closes,
# which also happens when the process that started the cluster is killed, then
# kills every process with the cluster's mark in its environment, unmounts what
# clients mounted below the data directory, and removes it if it is temporary.
# Arguments: MARK DATA_DIR REMOVE(yes|no)
trap '' INT TERM HUP
cat >/dev/null
mark=$1 dir=$2 remove=$3

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
if [ "$remove" = yes ]; then
  rm -rf "$dir" || echo "directory left: $dir"
fi
