#!/usr/bin/env bash
# All commands, as a user types them, on a synthetic corpus. Needs gramrun on the PATH.
set -euo pipefail
root="$(cd "$(dirname "$0")/.." && pwd)"
work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT
cd "$work"
config="$root/configs/synthetic/sogram.yaml"

gramrun prepare synthetic --output data/synthetic
gramrun prepare synthetic --output data/synthetic | grep -q "nothing to do"
for estimator in sampling sogram sagram control-variate exact; do
  gramrun train --config "$config" --set "estimator.name=$estimator" --output "runs/$estimator"
done
gramrun train --config "$config" --set train.objective=taylor-softmax --set train.gamma_left=1 --set train.gravity=1 --output runs/taylor
for run in runs/*; do gramrun evaluate "$run"; done
gramrun evaluate runs/sogram --split train --json | python -c 'import json, sys; assert json.load(sys.stdin)["map@10"] > 0'
gramrun baseline --config "$root/configs/synthetic/exact-als.yaml" --output baseline
gramrun evaluate baseline --full
gramrun gram-error --config "$config" --output gram-error
gramrun export runs/sogram --output items.parquet
gramrun neighbors runs/sogram destination-7 --json | python -c 'import json, sys; assert len(json.load(sys.stdin)["neighbors"]) == 10'
gramrun plot map runs/* --output map.png
gramrun plot gram-error gram-error --output gram-error.svg
gramrun plot trade-off gram-error --output trade-off.pdf
gramrun plot theory gram-error --output theory.png
gramrun doctor --config "$config" > doctor.txt

# Wikipedia: a small made wiki as tables, through the dump reader, and the paper's towers on it.
tables=(--set planted.pages=2000 --set planted.links=30000 --set planted.words=300 --set planted.categories=100 --set planted.topics=5)
gramrun prepare simple-scale "${tables[@]}" --output data/wiki
gramrun prepare wikipedia-sql --source data/raw/planted/simple-scale-2026 --output data/wiki-sql
gramrun train --config "$root/configs/wikipedia-simple/sogram.yaml" --set data.path=data/wiki --set train.epochs=null --set train.steps=20 --output wiki-sogram
gramrun evaluate wiki-sogram
for file in items.parquet map.png gram-error.svg trade-off.pdf theory.png gram-error/gram_error.csv gram-error/trajectory.csv doctor.txt; do test -s "$file"; done
echo "smoke: all commands ran"
