#!/usr/bin/env bash
# Changes between an older build of walpost and this one, under load, and back again: nothing may be lost.
#
#   scripts/upgrade.sh           the last tag, or where there is none ten commits ago
#   scripts/upgrade.sh REV       any revision
#
# The older one is built in a worktree of its own, with its own target directory, below ${TMPDIR:-/tmp}; both are removed at the
# end. A binary that exists already is named instead by WALPOST_TEST_OTHER_BUILD.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
# shellcheck source=scripts/provision.sh
source scripts/provision.sh

require_rust
provision build servers postgres 17
export WALPOST_CACHE=$CACHE

if [[ -z ${WALPOST_TEST_OTHER_BUILD:-} ]]; then
  revision=${1:-$(git describe --tags --abbrev=0 2>/dev/null || echo HEAD~10)}
  revision=$(git rev-parse --short "$revision^{commit}")
  folder=$(mktemp -d)
  trap 'git worktree remove --force "$folder/walpost" || true; rm -rf "$folder"' EXIT
  say "building $revision"
  git worktree add -q --detach "$folder/walpost" "$revision"
  (cd "$folder/walpost" && CARGO_TARGET_DIR=$folder/target cargo build -q --profile ci --bin walpost)
  export WALPOST_TEST_OTHER_BUILD=$folder/target/ci/walpost
fi
say "$("$WALPOST_TEST_OTHER_BUILD" --version) and this one"
cargo test --profile ci --test e2e -- upgrade:: --nocapture
