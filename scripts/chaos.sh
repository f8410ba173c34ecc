#!/usr/bin/env bash
# A campaign of faults against real servers, with writers on; ends with a table, and not with 0 where a promise broke.
#
#   scripts/chaos.sh [--faults 300] [--seed N] [--mode both|at_least_once|exactly_once]
#
# The seed decides which fault comes when and for how long, and what writers write; without one the clock does, and it is
# printed. Both modes run side by side, with half of the faults each. The story is told as it goes on. As root it runs in
# mounts of its own, where a small file system can run full; others see that fault as not run.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
# shellcheck source=scripts/provision.sh
source scripts/provision.sh

faults=300 seed=$(date +%s) mode=both
while [[ $# -gt 0 ]]; do
  case $1 in
    --faults) faults=${2:?} ;;
    --seed) seed=${2:?} ;;
    --mode) mode=${2:?} ;;
    *) fail 2 "unknown word $1; usage: scripts/chaos.sh [--faults 300] [--seed N] [--mode both|at_least_once|exactly_once]" ;;
  esac
  shift 2
done

require_rust
provision build kafka postgres 17
export WALPOST_CACHE=$CACHE
cargo test --profile ci --test chaos --no-run
run=(cargo test --profile ci --test chaos every_promise -- --nocapture)
if [[ $EUID -eq 0 ]] && unshare --mount true 2>/dev/null; then
  run=(unshare --mount --propagation private "${run[@]}")
fi
exec env WALPOST_TEST_LONG=1 WALPOST_CHAOS_FAULTS="$faults" WALPOST_CHAOS_SEED="$seed" WALPOST_CHAOS_MODE="$mode" "${run[@]}"
