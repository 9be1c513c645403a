# Steps of a program whose syncs are off, for the tests here, which read this file at their end. TOOL.sh defines
#
#   STEPS         how many steps a run has
#   setup         makes what is there before
#   take_step N   takes one, with the program
#   list_steps    recovers what a power cut has left, as the program's manual says, and prints the numbers of the steps that are there
#                 whole. It fails, and says why, where something is torn. Of the newest step a part may be there, if the program
#                 says so itself and can take that step again: so a kill in the middle of it would have left it.
#
# TOOL.sh setup, TOOL.sh run, and TOOL.sh check [MILLISECONDS]. The check takes any prefix of the steps, if none of it is torn; with a
# number, no step may be missing that was acknowledged so long before the power was cut. WEIR_LOST names a file that gets, for each
# state, how long before the cut the oldest step was acknowledged that is missing, or 0.

# Acknowledges a word or two, with the time in milliseconds.
acknowledge() {
    date +"$* %s%3N" >>"$WEIR_ACK"
}

# Runs a command, whose output is printed only if it fails.
quiet() {
    said=$("$@" 2>&1) || { echo "$said"; return 1; }
}

run() {
    # Time alone is acknowledged, too: so a check knows when the power was cut.
    while acknowledge at; do sleep 0.01; done &
    clock=$!
    trap 'kill "$clock"' EXIT
    for number in $(seq "$STEPS"); do
        quiet take_step "$number" || exit 1
        acknowledge step "$number"
        # Some steps follow at once, and some after the next moment.
        sleep 0.$((number % 4))
    done
}

check() {
    found=$(list_steps 2>&1) || { echo "torn: $(echo "$found" | tail -n 4)"; exit 1; }
    count=$(echo "$found" | wc -w)
    [ "$(echo $found)" = "$(echo $(seq "$count"))" ] || { echo "order: steps $(echo $found) are there, and not those before"; exit 1; }
    lost=$(awk -v count="$count" '
        { now = $NF }
        $1 == "step" && $2 > count && !oldest { oldest = $3 }
        END { print oldest ? now - oldest : 0 }' "$WEIR_ACKED")
    [ -z "${WEIR_LOST:-}" ] || echo "$lost" >>"$WEIR_LOST"
    [ "$lost" -le "${1:-$lost}" ] || { echo "lost: step $((count + 1)) was acknowledged $lost ms before the cut"; exit 1; }
}

"$@"
