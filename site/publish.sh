#!/usr/bin/env bash
# publish.sh DIR: builds what the site consists of into DIR, an empty folder: the pages of this
# checkout at the top, and below v0.1/ those of the newest release v0.1.x, and so on, as git's tags
# say. CRONCE_BASE is the path under which DIR will be served (default: /).
set -euo pipefail
dir=$(realpath "$1")
cd "$(dirname "$0")"
base=${CRONCE_BASE:-/}
trees=$(mktemp -d)
trap 'git worktree prune; rm -rf "$trees" versions.json' EXIT

# The newest tag of each minor version, the newest version first. Releases before the site are left out.
tags=()
for tag in $(git tag --list 'v*' --sort=-version:refname | grep -E '^v[0-9]+\.[0-9]+\.[0-9]+$' || true); do
  [[ " ${tags[*]-} " == *" ${tag%.*}."* ]] || ! git cat-file -e "$tag:site/build.sh" 2>/dev/null || tags+=("$tag")
done
{
  printf '[{"name": "main", "dir": ""}'
  for tag in "${tags[@]}"; do printf ', {"name": "%s", "dir": "%s/"}' "${tag%.*}" "${tag%.*}"; done
  echo ']'
} >"$trees/versions.json"

cp "$trees/versions.json" versions.json
CRONCE_BASE=$base CRONCE_SITE=$dir ./build.sh
for tag in "${tags[@]}"; do
  git worktree add --quiet --detach "$trees/$tag" "$tag"
  cp "$trees/versions.json" "$trees/$tag/site/"
  [ -e "$trees/$tag/site/node_modules" ] || ! cmp -s package-lock.json "$trees/$tag/site/package-lock.json" || cp -R node_modules "$trees/$tag/site/"
  CRONCE_VERSION=$tag CRONCE_BASE=$base${tag%.*}/ CRONCE_SITE=$dir/${tag%.*} "$trees/$tag/site/build.sh"
  git worktree remove --force "$trees/$tag"
done
