#!/usr/bin/env bash
# Every command once, as a user types it, on small made corpora. Needs gramrun on the PATH.
set -euo pipefail
root="$(cd "$(dirname "$0")/.." && pwd)"
work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT
cd "$work"
config="$root/configs/synthetic/sogram.yaml"

gramrun prepare synthetic --output data/synthetic
gramrun train --config "$config" --output run
gramrun evaluate run --split train --json | python -c 'import json, sys; assert json.load(sys.stdin)["map@10"] > 0'
gramrun baseline --config "$root/configs/synthetic/exact-als.yaml" --output baseline
gramrun gram-error --config "$config" --output gram-error
gramrun export run --output items.parquet
gramrun neighbors run destination-7 --json | python -c 'import json, sys; assert len(json.load(sys.stdin)["neighbors"]) == 10'
gramrun plot map run --output map.png
gramrun plot theory gram-error --output theory.svg
gramrun doctor --config "$config" > doctor.txt

# The towers of a wiki: pages with features that both sides share.
python "$root/tests/small_wiki.py" enwik8
gramrun prepare simple-scale --source enwik8 --set expansion.left_blocks=5 --set expansion.pairs=30000 --output data/wiki
gramrun train --config "$root/configs/wikipedia-simple/sogram.yaml" --set data.path=data/wiki --set train.epochs=null --set train.steps=20 --output wiki
for file in items.parquet map.png theory.svg gram-error/gram_error.csv doctor.txt; do test -s "$file"; done
echo "smoke: all commands ran"
