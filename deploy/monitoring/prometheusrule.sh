#!/usr/bin/env bash
# Makes the PrometheusRule manifest from the plain rules:
#
#   deploy/monitoring/prometheusrule.sh > deploy/monitoring/prometheusrule.yaml
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
cat <<'HEAD'
# Made from purelb.rules.yml by prometheusrule.sh: change it there.
apiVersion: monitoring.coreos.com/v1
kind: PrometheusRule
metadata:
  name: purelb
  namespace: purelb-system
  labels:
    app.kubernetes.io/name: purelb
spec:
HEAD
sed -n '/^groups:/,$p' purelb.rules.yml | sed 's/^\(.\)/  \1/'
