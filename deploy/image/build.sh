#!/bin/sh
# Builds the image of cronce for two architectures into an OCI layout, with buildah:
#
#   deploy/image/build.sh AMD64-BINARY ARM64-BINARY LAYOUT
#
# The image starts from scratch. It has the static binary, the CA certificates of this machine,
# and /data, which the user 65532 owns: a place for the volume of an embedded server. It has no
# shell: exec actions need an image of your own that starts from this one, or copies the binary.
# Run it as root, or with "buildah unshare". SOURCE_DATE_EPOCH is the time of its files (default: 0).
set -eu

amd64=$1 arm64=$2 layout=$3
certificates=${CERTIFICATES:-/etc/ssl/certs/ca-certificates.crt}
time=${SOURCE_DATE_EPOCH:-0}
name=cronce-$$

trap 'buildah manifest rm "$name" >/dev/null 2>&1 || true' EXIT
buildah manifest create "$name" >/dev/null
for arch in amd64 arm64; do
  eval "binary=\$$arch"
  container=$(buildah from --platform "linux/$arch" scratch)
  root=$(buildah mount "$container")
  install -d -m 0755 "$root/usr" "$root/usr/bin" "$root/etc" "$root/etc/ssl" "$root/etc/ssl/certs"
  install -m 0755 "$binary" "$root/usr/bin/cronce"
  install -m 0644 "$certificates" "$root/etc/ssl/certs/ca-certificates.crt"
  install -d -m 0700 -o 65532 -g 65532 "$root/data"
  buildah umount "$container" >/dev/null
  buildah config --arch "$arch" --user 65532:65532 --workingdir / --env CRONCE_STORE=/data --env HOME=/data \
    --entrypoint '["/usr/bin/cronce"]' --cmd --help \
    --label org.opencontainers.image.title=cronce \
    --label org.opencontainers.image.description="Job scheduler without a leader, on NATS JetStream" \
    --label org.opencontainers.image.source=https://github.com/cronce-io/cronce \
    --label org.opencontainers.image.licenses=Apache-2.0 "$container"
  image=$(buildah commit -q --rm --timestamp "$time" --format oci "$container")
  buildah manifest add --arch "$arch" --os linux "$name" "$image" >/dev/null
done
buildah manifest push -q --all "$name" "oci:$layout:latest" >/dev/null
