#!/bin/sh
# After a removal (deb: remove; rpm: 0), or a purge (deb). A removal keeps configuration, data and
# the user that owns them. A purge removes all of it.
set -e

if [ -d /run/systemd/system ]; then
  systemctl daemon-reload
fi
if [ "$1" = purge ]; then
  rm -rf /etc/cronce /var/lib/cronce /var/lib/cronce-server
  if getent passwd cronce >/dev/null; then
    userdel cronce
  fi
fi
