#!/bin/sh
# Pays for one chat on Base by the Machine Payments Protocol, with its own command line: no account, no
# key. What is left of the payment is the wallet's credit.
#   BASE_URL=https://api.example.com/api/v1 MPPX_PRIVATE_KEY=0x... sh examples/wallet/mpp.sh
set -eu
exec ${MPPX:-npx --yes mppx@0.11.0} --protocol mpp --include \
  "${BASE_URL:-http://127.0.0.1:8402/api/v1}/chat/completions" --json-body \
  "{\"model\":\"${MODEL:-default}\",\"messages\":[{\"role\":\"user\",\"content\":\"Say hello\"}]}"
