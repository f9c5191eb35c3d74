# A trainer for the scenarios: it writes down what it does, each line with the
# time in nanoseconds, for the checks to read.
note() { echo "$(date +%s%N) $*" >> "$DIARY/$NOMAD_ALLOC_ID"; }
save() {
  : > "$checkpoints/.$step"
  mv "$checkpoints/.$step" "$checkpoints/$step"
}
checkpoints=$DIARY/checkpoints-$NOMAD_ALLOC_INDEX
mkdir -p "$checkpoints"
step=$(ls "$checkpoints" | sort -n | tail -1)
[ -n "$step" ] || step=0
trap 'save; note end step=$step; exit 0' USR1
trap 'note end step=$step; exit 0' TERM
trap 'note resized world=$(grep -o "\"alloc\"" "$CARAVAN_MEMBERSHIP" | wc -l)' USR2
note start pid=$$ rank="$RANK" world="$WORLD_SIZE" step="$step" epoch="$CARAVAN_EPOCH"
while [ ! -e "$DIARY/finish" ]; do
  sleep 0.1 &
  wait $!
  step=$((step + 1))
  note tick step="$step"
  if [ -e "$DIARY/crash-$RANK" ]; then
    rm "$DIARY/crash-$RANK"
    note crash step="$step"
    exit 7
  fi
done
note end step="$step"
