#!/bin/sh
# Checks the dashboards in deploy/grafana against Grafana's own types, to the letter: every field must be known and whole, of
# panels, of their options and of their queries too. By hand, after a change of a dashboard; needs Node.js and npm.
set -eu
cd "$(dirname "$0")"
version=${1:-12.1.0} # of Grafana
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cp types.ts ../*.json "$work"
cd "$work"
npm install --silent --no-package-lock --prefix . typescript@5 >/dev/null
for package in schema prometheus; do # their types alone: what they depend on is half of Grafana
  tarball=$(npm pack --silent "@grafana/$package@$version" | tail -n 1)
  mkdir -p "node_modules/@grafana/$package"
  tar -xzf "$tarball" -C "node_modules/@grafana/$package" --strip-components=1
done
{
  cat types.ts
  for file in *.json; do
    case $file in package*) continue ;; esac
    echo "dashboards['$file'] ="
    cat "$file"
  done
} >check.ts
node_modules/.bin/tsc --noEmit --strict --skipLibCheck --module esnext --moduleResolution bundler --target es2022 check.ts
echo "the dashboards fit Grafana $version"
