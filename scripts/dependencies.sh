#!/usr/bin/env bash
# Checks what walpost is built from: licences, sources, and crates that it must not have (deny.toml).
#
#   scripts/dependencies.sh
#
# Known vulnerabilities are checked where WALPOST_ADVISORY_DB names a local copy (a git clone) of RustSec's advisory
# database: this fetches nothing.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
# shellcheck source=scripts/provision.sh
source scripts/provision.sh
require_rust
provision tools

deny() { "$CACHE/tools/bin/cargo-deny" --locked "$@"; }
cargo fetch --locked --quiet
deny --offline check licenses bans sources

if [[ -z ${WALPOST_ADVISORY_DB:-} ]]; then
  say "advisories are not checked: WALPOST_ADVISORY_DB names no copy of RustSec's advisory database"
  exit
fi
[[ -d $WALPOST_ADVISORY_DB/crates ]] || fail 2 "WALPOST_ADVISORY_DB=$WALPOST_ADVISORY_DB holds no folder crates: it must be a copy of RustSec's advisory-db"
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
# The name that cargo-deny gives to its clone of RustSec's.
git clone --quiet "file://$(realpath "$WALPOST_ADVISORY_DB")" "$folder/advisory-db-3157b0e258782691"
sed "s|^\[advisories\]|&\ndb-path = \"$folder\"|" deny.toml >"$folder/deny.toml"
deny --offline --config "$folder/deny.toml" check advisories
