#!/bin/sh
# After an installation (deb: configure; rpm: 1) or an upgrade (configure OLD-VERSION; 2).
set -e

if ! getent passwd cronce >/dev/null; then
  if command -v systemd-sysusers >/dev/null; then
    systemd-sysusers /usr/lib/sysusers.d/cronce.conf
  else
    useradd --system --user-group --no-create-home --home-dir /var/lib/cronce --shell /usr/sbin/nologin cronce
  fi
fi
# Job files and credentials may be secret: root writes them, the node reads them.
chgrp cronce /etc/cronce
if [ -d /run/systemd/system ]; then
  systemctl daemon-reload
  # What runs is restarted with the new program, and what does not stays stopped. A node that
  # waits for its broker must not hold up the package manager.
  systemctl try-restart --no-block cronce-server.service cronce.service cronce-ui.service
fi
