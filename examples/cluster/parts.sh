#!/usr/bin/env bash
# Sums an attribute of INT32 over the rows of a dense array, ROWS of them at a time, by ssh on several
# machines.
#
#     parts.sh /mnt/arrays/grid a ROWS HOST...
set -euo pipefail
array=$1 attribute=$2 rows=$3
export attribute hosts="${*:4}"
pinned=$(readlink -f "$array/at/latest")
export pinned
echo "of $pinned"

# part NUMBER RANGE: the sum of these rows, from the first machine that has it.
part() {
    local column=$pinned/data/subarray/$2/columns/$attribute/data.bin sum try
    read -r -a hosts <<<"$hosts"
    for try in "${!hosts[@]}"; do
        # What a machine prints counts only if all went well there.
        sum=$(ssh "${hosts[($1 + try) % ${#hosts[@]}]}" bash -o pipefail -s -- "$column" <<'END'
            od -A n -v -t d4 -w4 "$1" | awk '{ sum += $1 } END { printf "%.0f\n", sum }'
END
        ) && echo "$sum" && return
    done
    return 1
}
export -f part

# Numbered parts `low..high,` with all of the other dimensions. Where one fails on every machine, so does
# this.
sums=$(jq -r --argjson rows "$rows" '
        .region[0] as [$low, $high] | (.region[1:] | map(",") | add) as $all
        | range($low; $high + 1; $rows)
        | "\(.)..\([. + $rows - 1, $high] | min)\($all)"
    ' "$pinned/data/view.json" | nl | xargs -P "$(($# - 3))" -L 1 bash -c 'part "$@"' part)
awk '{ sum += $1 } END { printf "%d parts, %.0f\n", NR, sum }' <<<"$sums"
