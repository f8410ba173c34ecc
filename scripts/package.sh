#!/usr/bin/env bash
# Builds what is shipped, from the release profile into target/package: the Debian package, the texts of the dependencies'
# licences, and the list of what the binary is made of (CycloneDX).
#
#   scripts/package.sh              builds the binary, which takes minutes
#   scripts/package.sh --no-build   takes target/release/walpost as it is
#
# cargo-deb and cargo-cyclonedx are installed by cargo into the cache where they are missing.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
# shellcheck source=scripts/provision.sh
source scripts/provision.sh

CARGO_DEB_VERSION=3.8.0
CARGO_CYCLONEDX_VERSION=0.5.9

fetch_cargo_tools() { # FOLDER
  cargo install --quiet --locked --root "$1" "cargo-deb@$CARGO_DEB_VERSION" "cargo-cyclonedx@$CARGO_CYCLONEDX_VERSION"
}

require_rust
provision build
command -v dpkg-shlibdeps >/dev/null || apt_install dpkg-dev
command -v python3 >/dev/null || apt_install python3
packagers=packagers-$CARGO_DEB_VERSION-$CARGO_CYCLONEDX_VERSION
fetched "$packagers" fetch_cargo_tools
PATH=$CACHE/$packagers/bin:$PATH

[[ ${1:-} == --no-build ]] || cargo build --release --locked
walpost=target/release/walpost
out=target/package
rm -rf "$out"
mkdir -p "$out"

"$walpost" man --out "$out/man" >/dev/null
"$walpost" completions bash >"$out/walpost.bash"
"$walpost" completions zsh >"$out/_walpost"
"$walpost" completions fish >"$out/walpost.fish"
target=$(rustc -vV | sed -n 's/^host: //p')
python3 scripts/third_party.py "$target" >"$out/third-party.txt"
cargo cyclonedx --quiet --format json --spec-version 1.5 --target "$target" --no-build-deps --override-filename walpost.cdx
# Its references name the folder of the build.
sed "s|path+file://$PWD#|walpost:|g" walpost.cdx.json >"$out/walpost.cdx.json"
rm walpost.cdx.json
cargo deb --no-build --output "$out/"
ls -l "$out"/*deb "$out/third-party.txt" "$out/walpost.cdx.json"
