#!/usr/bin/env bash
# Runs an image without root, capabilities, a writable disk or a network other than the loopback. The
# printed curl command must get a response, the audit must find no difference, and the server must stop
# without an error.
set -euo pipefail
image="$1"

docker run --detach --name farebox-trial --read-only --tmpfs /tmp --cap-drop ALL \
  --security-opt no-new-privileges --network none "$image"
trap 'docker logs farebox-trial; docker rm --force farebox-trial' EXIT

inside() { docker exec farebox-trial "$@"; }
for _ in $(seq 60); do
  [[ "$(docker inspect --format '{{.State.Health.Status}}' farebox-trial)" == healthy ]] && break
  sleep 1
done
test "$(docker inspect --format '{{.State.Health.Status}}' farebox-trial)" = healthy
test "$(inside id -u)" -ne 0

# Without a network the caller has to be inside: the printed curl, as Node says it.
key="$(docker logs farebox-trial 2>&1 | grep -o 'SVC_ADMIN_KEY_[A-Za-z0-9_-]*' | head -1)"
inside node --input-type=module -e "
  const answer = await fetch('http://127.0.0.1:8402/api/v1/chat/completions', {
    method: 'POST',
    headers: { authorization: 'Bearer $key', 'content-type': 'application/json' },
    body: JSON.stringify({ model: 'default', messages: [{ role: 'user', content: 'Hello' }] }),
  });
  console.log(answer.status, await answer.text());
  process.exit(answer.status === 200 ? 0 : 1);
"
inside farebox audit
docker stop farebox-trial
test "$(docker inspect --format '{{.State.ExitCode}}' farebox-trial)" -eq 0
