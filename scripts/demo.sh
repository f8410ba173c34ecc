#!/usr/bin/env bash
# The whole story on one machine: orders are placed in PostgreSQL, their events reach Kafka, walpost is killed on the
# way, and nothing is lost. Finds or installs what is missing, starts private servers, stops all that it started.
#
#   scripts/demo.sh             on this machine, without containers
#   scripts/demo.sh --docker    with Docker Compose: the servers and walpost of docker-compose.yml
#
# Further words go to walpost demo: scripts/demo.sh --help. The container variant was written without a container
# engine at hand: docker-compose.yml was checked against Compose's schema, and has not been run.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
# shellcheck source=scripts/servers.sh
source scripts/servers.sh

if [[ ${1:-} == --docker ]]; then
  shift
  docker compose version >/dev/null 2>&1 || fail 2 "docker compose is needed for --docker; without it: scripts/demo.sh"
  trap 'docker compose --profile demo down --volumes' EXIT
  docker compose --profile demo run --build --rm demo "$@"
  exit
fi

require_rust
provision build servers
say "building (the first time takes some minutes)"
cargo build --release --quiet
start_servers
target/release/walpost demo --database-url "$DATABASE_URL" --brokers "$BROKERS" "$@"
