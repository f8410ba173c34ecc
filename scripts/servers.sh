#!/usr/bin/env bash
# Starts a private PostgreSQL (wal_level=logical) and a private single-node Kafka in a temporary folder, on free
# loopback ports, and ends both together with whoever asked for them.
#
#   scripts/servers.sh                      runs until Ctrl-C; prints the export line for walpost
#   scripts/servers.sh COMMAND ARGUMENT...  runs it with DATABASE_URL and BROKERS; its exit code is the script's
#
# Other scripts source this file, call start_servers, and find DATABASE_URL and BROKERS exported. A trap ends the
# servers and removes the folder when the script exits, by whatever signal it can catch.
set -euo pipefail
# shellcheck source=scripts/provision.sh
source "$(dirname "${BASH_SOURCE[0]}")/provision.sh"

SERVERS_FOLDER=
POSTGRES_PID=
KAFKA_PID=
BECOME=() # PostgreSQL refuses to run as root

stop_servers() {
  local pid tries
  # Children of a script ignore Ctrl-C unless they ask for it: PostgreSQL does and shuts down fast, Java does not.
  [[ -z $POSTGRES_PID ]] || kill -INT "$POSTGRES_PID" 2>/dev/null || true
  [[ -z $KAFKA_PID ]] || kill -TERM "$KAFKA_PID" 2>/dev/null || true
  for pid in $POSTGRES_PID $KAFKA_PID; do
    for ((tries = 0; tries < 100; tries++)); do
      kill -0 "$pid" 2>/dev/null || break
      sleep 0.1
    done
    kill -KILL "$pid" 2>/dev/null || true
    wait "$pid" 2>/dev/null || true
  done
  POSTGRES_PID='' KAFKA_PID=''
  [[ -z $SERVERS_FOLDER ]] || rm -rf "$SERVERS_FOLDER"
}

listens() { # PORT
  (: <"/dev/tcp/127.0.0.1/$1") 2>/dev/null
}

free_port() { # below the range from which the kernel takes ports for outgoing connections
  local port
  while port=$((15000 + RANDOM % 15000)) && listens "$port"; do :; done
  printf '%s\n' "$port"
}

# Polls a check for a minute. Gives up at once when the server has ended, and shows the end of its log.
await() { # NAME PID LOG CHECK ARGUMENT...
  local name=$1 pid=$2 log=$3 tries
  shift 3
  for ((tries = 0; tries < 600; tries++)); do
    "$@" >/dev/null 2>&1 && return
    kill -0 "$pid" 2>/dev/null || break
    sleep 0.1
  done
  tail -n 30 "$log" >&2
  fail 1 "$name did not start"
}

launch_postgres() { # PORT
  local folder=$SERVERS_FOLDER/postgres user=nobody
  mkdir "$folder"
  if [[ $EUID -eq 0 ]]; then
    id postgres >/dev/null 2>&1 && user=postgres
    BECOME=(setpriv "--reuid=$(id -u "$user")" "--regid=$(id -g "$user")" --clear-groups --)
    chown "$(id -u "$user"):$(id -g "$user")" "$folder"
  fi
  cd "$folder"
  local programs=$CACHE/postgres/any/bin
  ${BECOME[@]+"${BECOME[@]}"} "$programs/initdb" -D data -U postgres -A trust -E UTF8 --locale=C --no-sync
  exec ${BECOME[@]+"${BECOME[@]}"} "$programs/postgres" -D data -p "$1" -k "$folder" \
    -c listen_addresses=127.0.0.1 -c wal_level=logical -c fsync=off
}

launch_kafka() { # PORT CONTROLLER_PORT
  local java=(java -XX:+UseSerialGC -Dorg.slf4j.simpleLogger.defaultLogLevel=warn -cp "$CACHE/kafka/*")
  mkdir "$SERVERS_FOLDER/kafka"
  cd "$SERVERS_FOLDER/kafka"
  cat >server.properties <<PROPERTIES
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:$2
listeners=PLAINTEXT://127.0.0.1:$1,CONTROLLER://127.0.0.1:$2
controller.listener.names=CONTROLLER
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
log.dirs=$SERVERS_FOLDER/kafka/data
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
group.initial.rebalance.delay.ms=0
PROPERTIES
  "${java[@]}" -XX:TieredStopAtLevel=1 kafka.tools.StorageTool format -t d2FscG9zdC1kZW1vLTAwMQ -c server.properties
  exec "${java[@]}" -Xmx512m kafka.Kafka server.properties
}

start_servers() {
  local postgres_port kafka_port
  SERVERS_FOLDER=$(mktemp -d "${TMPDIR:-/tmp}/walpost-servers-XXXXXX")
  chmod 755 "$SERVERS_FOLDER"
  trap stop_servers EXIT
  trap 'exit 129' HUP
  trap 'exit 130' INT
  trap 'exit 143' TERM
  postgres_port=$(free_port)
  kafka_port=$(free_port)
  (launch_postgres "$postgres_port") </dev/null >"$SERVERS_FOLDER/postgres.log" 2>&1 &
  POSTGRES_PID=$!
  (launch_kafka "$kafka_port" "$(free_port)") </dev/null >"$SERVERS_FOLDER/kafka.log" 2>&1 &
  KAFKA_PID=$!
  export DATABASE_URL="postgres://postgres@127.0.0.1:$postgres_port/postgres" BROKERS="127.0.0.1:$kafka_port"
  await PostgreSQL "$POSTGRES_PID" "$SERVERS_FOLDER/postgres.log" psql -X -d "$DATABASE_URL" -c 'SELECT 1'
  await Kafka "$KAFKA_PID" "$SERVERS_FOLDER/kafka.log" listens "$kafka_port"
  unset WALPOST_CACHE # walpost would warn of a variable that is none of its own
}

if [[ ${BASH_SOURCE[0]} == "$0" ]]; then
  provision servers
  start_servers
  if [[ $# -gt 0 ]]; then
    "$@"
  else
    printf 'export WALPOST_DATABASE_URL=%q WALPOST_BROKERS=%q\n' "$DATABASE_URL" "$BROKERS"
    say "Ctrl-C stops both servers"
    wait "$POSTGRES_PID" "$KAFKA_PID"
  fi
fi
