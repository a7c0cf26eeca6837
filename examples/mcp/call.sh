#!/bin/sh
# Lists the tools of an MCP server and calls one, with an API key and curl:
#   FAREBOX_ORIGIN=http://127.0.0.1:8402 FAREBOX_KEY=... sh call.sh "Name a colour"
set -eu
ask() {
  curl -sS --fail-with-body "$FAREBOX_ORIGIN/mcp" \
    -H "authorization: Bearer $FAREBOX_KEY" -H 'content-type: application/json' \
    -H 'accept: application/json, text/event-stream' -d "$1"
  echo
}
ask '{"jsonrpc":"2.0","id":1,"method":"tools/list"}'
ask "{\"jsonrpc\":\"2.0\",\"id\":2,\"method\":\"tools/call\",\"params\":{\"name\":\"chat\",
  \"arguments\":{\"prompt\":\"$1\",\"max_tokens\":100}}}"
