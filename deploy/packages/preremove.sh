#!/bin/sh
# Before a removal (deb: remove; rpm: 0). An upgrade (upgrade; 1) stops nothing.
set -e

case "$1" in
remove | 0)
  units="cronce-ui.service cronce.service cronce-server.service"
  if [ -d /run/systemd/system ]; then
    systemctl disable --now $units
  elif command -v systemctl >/dev/null; then
    systemctl disable $units # in a chroot or an image: only the links of enabled units
  fi
  ;;
esac
