/** Details of chain errors that the log may contain. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { systemClock } from '../core/clock.ts';
import { chainReason } from './chain-log.ts';
import { openEvmNodes } from './evm/chain.ts';

test('the address of a node, which may carry an access key, is not in a reason', async () => {
  const client = openEvmNodes('http://127.0.0.1:9/v2/secret-key', systemClock()).client;
  const error = await client.getBlockNumber().catch((caught: unknown) => caught);
  assert.ok(error instanceof Error);
  assert.match(error.message, /secret-key/);
  assert.doesNotMatch(chainReason(error), /secret-key/);
  assert.equal(chainReason(new Error('lost https://node.test/k3y now')), 'lost <url> now');
  assert.ok(chainReason('x'.repeat(999)).length <= 200);
});
