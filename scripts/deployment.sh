#!/usr/bin/env bash
# Judges the files of deploy/: the chart by Helm, by Kubernetes' schemas and by what walpost needs; the unit by systemd-analyze;
# the Compose file, the image and the package's list by what they name; the image by running walpost in what it would hold.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
# shellcheck source=scripts/provision.sh
source scripts/provision.sh
provision tools

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
helm() { "$CACHE/helm/helm" "$@"; }
python() { PYTHONPATH=$CACHE/tools python3 "$@"; }
chart=deploy/helm/walpost
version=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -n 1)

say "chart"
grep -qxF "appVersion: \"$version\"" $chart/Chart.yaml || fail 1 "$chart/Chart.yaml: appVersion is not Cargo.toml's $version"
helm lint --quiet --strict $chart
helm lint --quiet --strict $chart -f deploy/helm/full-values.yaml
for form in "default 2" "full 3"; do
  read -r name replicas <<<"$form"
  values=()
  [[ $name == default ]] || values=(-f "deploy/helm/$name-values.yaml")
  helm template orders $chart --kube-version 1.31 "${values[@]}" >"$scratch/$name.yaml"
  python tests/deploy/manifests.py "$scratch/$name.yaml" "$replicas" deploy/walpost.schema.json
done
for wrong in replcias=3 http.port=80 image.digest=latest 'secrets[0].config=kafka.sasl.password' config= prometheusRule.runbookPrefix=docs; do
  if helm template orders $chart --kube-version 1.31 --set "$wrong" >/dev/null 2>&1; then
    fail 1 "the chart takes --set $wrong"
  fi
done

say "unit"
# The program need not be installed here.
sed 's|^ExecStart=/usr/bin/walpost|ExecStart=/bin/true|' deploy/systemd/walpost.service >"$scratch/walpost.service"
found=$(systemd-analyze verify --man=no "$scratch/walpost.service" 2>&1) || fail 1 "deploy/systemd/walpost.service: $found"
[[ -z $found ]] || fail 1 "deploy/systemd/walpost.service: $found"
# 0 is shut off from everything, 100 is a service without bounds.
systemd-analyze security --no-pager --offline=yes --threshold=20 "$scratch/walpost.service" >"$scratch/exposure" ||
  fail 1 "deploy/systemd/walpost.service is too open: $(tail -n 1 "$scratch/exposure")"
tail -n 1 "$scratch/exposure"

say "image and package"
python tests/deploy/named.py

say "image"
built=
for path in target/ci/walpost target/release/walpost; do
  [[ ! -x $path ]] || built=$path
done
if [[ -n $built && $EUID -eq 0 ]] && dpkg-query --status libssl3 libgcc-s1 ca-certificates >/dev/null 2>&1; then
  deploy/docker/rootfs.sh "$built" "$scratch/rootfs"
  chroot --userspec=65532:65532 "$scratch/rootfs" /usr/local/bin/walpost --version
else
  say "not tried: that needs root, Debian and a walpost in target/ci or target/release"
fi
