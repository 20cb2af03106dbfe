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
  # waits for its broker must not hold up the package manager. Each name is a job of its own, so
  # the server comes last: it then waits until the node has ended. A server that stops first
  # takes the outcome of each running slot with it, and the slot starts again.
  systemctl try-restart --no-block cronce-ui.service cronce.service cronce-server.service
fi
