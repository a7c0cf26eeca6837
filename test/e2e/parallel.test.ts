/** 300 requests at once against money for 40: never below zero, and every charge is usage × price. */
import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { TestUpstream } from '../support/test-upstream.ts';
import { type TestApp, startTestApp } from '../app/test-app.ts';

/** 12 prompt tokens at 1 USD and 5 completion tokens at 2 USD a million. */
const COST_NANO = 22_000n;
const AFFORDED = 40n;
const SENT = 300;

describe('300 parallel requests', () => {
  let upstream: TestUpstream;
  let farebox: TestApp;

  before(async () => {
    upstream = await TestUpstream.start();
    farebox = await startTestApp({
      yaml: `
engines: { one: { url: ${upstream.url} } }
models: [{ id: m, type: text, context: 4096, maxCompletionTokens: 16, price: { input: 1, output: 2 }, replicas: [{ engine: one }] }]
limits:
  minimumCreditUsd: 0
  keyConcurrency: 1000
  guard: { failures: 100000 }
  plans: { paid: { text: { XS: &wide { requestsPerMinute: 100000, tokensPerMinute: 100000000 }, S: *wide, M: *wide, L: *wide } } }
`,
    });
  });
  after(async () => {
    await farebox.stop();
    await upstream.kill();
  });

  for (const stream of [false, true]) {
    test(`${stream ? 'streams' : 'answers'}: what is served is what the money allows`, async () => {
      upstream.otherwise = stream
        ? { kind: 'stream', chunks: 5, usage: true }
        : { kind: 'json', usage: true };
      const { accountId, secret } = await farebox.account('0.00088');
      const { ledger, store } = farebox.app.stores;
      const send = async (): Promise<number> => {
        const answer = await fetch(`${farebox.url}/chat/completions`, {
          method: 'POST',
          headers: { authorization: `Bearer ${secret}`, 'content-type': 'application/json' },
          body: JSON.stringify({ model: 'm', stream, messages: [{ role: 'user', content: 'Hi' }] }),
        });
        await answer.arrayBuffer();
        return answer.status;
      };
      const statuses = await Promise.all(Array.from({ length: SENT }, send));
      // A hold bounds the worst case, so requests in flight cover more than they will cost; one
      // after another the rest of the money is served.
      while ((await send()) === 200) statuses.push(200);
      const served = statuses.filter((status) => status === 200).length;
      // 429: the money is there and held by others; 402: it is spent.
      assert.ok(
        statuses.every((status) => [200, 402, 429].includes(status)),
        statuses.join(),
      );
      assert.ok(served > 0 && BigInt(served) <= AFFORDED, `${served} served`);
      const { usdNano } = await ledger.balances(accountId);
      const costs = await store.query<{
        usd_nano: bigint;
        prompt_tokens: bigint;
        completion_tokens: bigint;
      }>(
        'SELECT usd_nano, prompt_tokens, completion_tokens FROM ledger_usage WHERE account_id = $1',
        [accountId],
      );
      const used = costs.reduce(
        (sum, row) => sum + row.prompt_tokens * 1_000n + row.completion_tokens * 2_000n,
        0n,
      );
      assert.equal(COST_NANO * AFFORDED - usdNano, used);
      assert.equal(
        costs.reduce((sum, row) => sum + row.usd_nano, 0n),
        used,
      );
      await farebox.audit();
      assert.equal((await ledger.audit()).openHolds, 0);
    });
  }
});
