#!/bin/sh
# Puts into FOLDER all that an image of walpost holds: the program, what it is linked with, authorities, a user, and the names and
# licences of the Debian packages that this comes from, by which scanners of images know their versions. No shell, no package manager.
#
#   deploy/docker/rootfs.sh WALPOST FOLDER
#
# /etc/hosts and /etc/resolv.conf are the container engine's. OpenSSL does without openssl.cnf: Debian's sets nothing.
set -eu
umask 022
root=$2

install -D -m 755 "$1" "$root/usr/local/bin/walpost"
linked=$(ldd "$1")
case $linked in *'not found'*) printf '%s\n' "$linked" >&2 && exit 1 ;; esac
# Each at its own path, the loader too.
printf '%s\n' "$linked" | grep -o '/[^ ]*' | xargs cp -L --parents -t "$root"

# Where OpenSSL looks by itself (OPENSSLDIR).
cp -L --parents -t "$root" /etc/ssl/certs/ca-certificates.crt /etc/os-release
mkdir -p "$root/usr/lib/ssl" "$root/home/walpost" "$root/var/lib/dpkg/status.d"
ln -s /etc/ssl/certs "$root/usr/lib/ssl/certs"
ln -s /etc/ssl/certs/ca-certificates.crt "$root/usr/lib/ssl/cert.pem"

echo 'walpost:x:65532:65532::/home/walpost:/sbin/nologin' >"$root/etc/passwd"
echo 'walpost:x:65532:' >"$root/etc/group"
echo 'hosts: files dns' >"$root/etc/nsswitch.conf"

for package in ca-certificates libc6 libgcc-s1 libssl3; do
  cp -L --parents -t "$root" "/usr/share/doc/$package/copyright"
  dpkg-query --status "$package" >"$root/var/lib/dpkg/status.d/$package"
done
