#!/usr/bin/env bash
# Finds or installs what the tests need, then runs them all against real PostgreSQL, Kafka and RabbitMQ.
#
#   scripts/test.sh            the short form, within CI's time
#   scripts/test.sh --long     the full sizes and durations
#
# Further words go to cargo test: scripts/test.sh --test e2e -- rolls_back
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
# shellcheck source=scripts/provision.sh
source scripts/provision.sh

if [[ ${1:-} == --long ]]; then
  shift
  export WALPOST_TEST_LONG=1
fi

require_rust
provision build servers rabbitmq promtool browser pgbouncer postgres 14 15 16 17 18
[[ -z ${WALPOST_TEST_LONG:-} ]] || provision connect
export WALPOST_CACHE=$CACHE
# End-to-end tests run the examples, which cargo leaves as they are where it is told --test.
cargo build --profile ci --examples
cargo test --profile ci --no-fail-fast "$@"
