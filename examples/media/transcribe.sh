#!/bin/sh
# Prints a transcript of a video at a public URL:
#   FAREBOX_KEY=… sh examples/media/transcribe.sh https://example.com/talk.mp4
set -eu
curl --fail-with-body --silent --show-error \
  "${FAREBOX_URL:-http://127.0.0.1:8402/api/v1}/video/transcriptions" \
  -H "Authorization: Bearer $FAREBOX_KEY" \
  -H "Content-Type: application/json" \
  -d "{\"url\":\"${1:?Give the URL of a video}\",\"response_format\":\"text\"}"
