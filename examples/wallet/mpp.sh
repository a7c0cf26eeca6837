#!/bin/sh
# Pays for one chat on Base with the command line of the Machine Payments Protocol, without an account or
# API key. The unused part of the payment becomes credit of the wallet.
#   FAREBOX_URL=https://api.example.com/api/v1 MPPX_PRIVATE_KEY=0x... sh examples/wallet/mpp.sh
set -eu
exec ${MPPX:-npx --yes mppx@0.11.0} --protocol mpp --include \
  "${FAREBOX_URL:-http://127.0.0.1:8402/api/v1}/chat/completions" --json-body \
  "{\"model\":\"${MODEL:-default}\",\"messages\":[{\"role\":\"user\",\"content\":\"Say hello\"}]}"
