/** The numbers of a gas key, on a private Base: each that was dealt is used, or dealt again. */
import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { parseTransaction } from 'viem';
import type { Hex } from 'viem';
import { type AnvilChain, startAnvil } from '../../../test/chains/anvil.ts';
import { openTestStore } from '../../../test/databases/stores.ts';
import { TestClock } from '../../../test/support/test-clock.ts';
import { type Clock, systemClock } from '../../core/clock.ts';
import { silentLog } from '../../core/log.ts';
import type { Store } from '../../db/db.ts';
import { PAYMENTS_MIGRATIONS } from '../migrations.ts';
import { EvmKey } from '../evm-key.ts';
import { openEvmNodes } from './chain.ts';
import { EvmSender } from './sender.ts';

describe('the sender of a gas key', () => {
  const folder = mkdtempSync(join(tmpdir(), 'farebox-sender-'));
  const clock = systemClock();
  const key = new EvmKey(randomBytes(32));
  const call = { to: key.address, data: '0x' } as const;
  let chain: AnvilChain;
  let store: Store;

  before(async () => {
    chain = await startAnvil();
    await chain.fund(key.address, 10n ** 18n);
    store = await openTestStore(`sqlite:${join(folder, 'test.db')}`);
    await store.migrate(PAYMENTS_MIGRATIONS);
  });
  after(async () => {
    await store.close();
    await chain.stop();
    rmSync(folder, { recursive: true });
  });

  const senderOn = (through: Store, by: Clock = clock): EvmSender => {
    const { client } = openEvmNodes([chain.rpcUrl], clock);
    return new EvmSender({
      store: through,
      clock: by,
      log: silentLog,
      client,
      counts: {
        mined: () => client.getTransactionCount({ address: key.address }),
        pending: () => client.getTransactionCount(sent),
      },
      key,
      chainId: 8453,
      maxGas: 300_000n,
      maxFeePerGas: 50_000_000_000n,
    });
  };
  // A number that waits for one before it is not among them.
  const sent = { address: key.address, blockTag: 'pending' } as const;
  const numberOf = (raw: Hex): number => parseTransaction(raw).nonce ?? 0;

  test('a gas nonce whose transaction could not be stored is reused', async () => {
    const sender = senderOn(store);
    const dealt: number[] = [];
    const failing = sender.send(call, async (_transaction, raw) => {
      dealt.push(numberOf(raw));
      throw new Error('the lease is lost');
    });
    await assert.rejects(failing, /the lease is lost/);
    await sender.send(call, async (_transaction, raw) => void dealt.push(numberOf(raw)));
    assert.deepEqual(dealt, [0, 0]);
    assert.equal(await chain.client.getTransactionCount(sent), 1);
  });

  test('a gas nonce is reused when the database was away while its row was written', async () => {
    let isAway = false;
    const sender = senderOn({
      ...store,
      query: async (...of: Parameters<Store['query']>) => {
        if (isAway) throw new Error('the database is away');
        return await store.query(...of);
      },
    } as Store);
    const failing = sender.send(call, async () => {
      isAway = true;
      throw new Error('the row was not written');
    });
    await assert.rejects(failing, /the row was not written/);
    isAway = false;
    await sender.send(call, async () => undefined);
    assert.equal(await chain.client.getTransactionCount(sent), 2);
  });

  test('a gas nonce is used again if the reply of the database was lost when it was dealt', async () => {
    let isLost = true;
    const sender = senderOn({
      ...store,
      query: async (...of: Parameters<Store['query']>) => {
        const rows = await store.query(...of);
        if (!isLost || !of[0].includes('RETURNING next_nonce')) return rows;
        isLost = false;
        throw new Error('the reply was lost');
      },
    } as Store);
    await assert.rejects(
      sender.send(call, async () => undefined),
      /the reply was lost/,
    );
    await sender.send(call, async () => undefined);
    assert.equal(await chain.client.getTransactionCount(sent), 3);
  });

  test('a gas nonce of a process that died is reused by the next process', async () => {
    await store.query(
      'UPDATE payments_gas_nonce SET next_nonce = next_nonce + 1, updated_ms = $1',
      [clock.nowMs()],
    );
    const sender = senderOn(store);
    await sender.send(call, async () => undefined);
    await sender.send(call, async () => undefined);
    assert.equal(await chain.client.getTransactionCount(sent), 5);
  });

  test('a gas nonce of a process that died does not block others that go on', async () => {
    const later = new TestClock(clock.nowMs());
    const sender = senderOn(store, later);
    await sender.send(call, async () => undefined);
    await store.query('UPDATE payments_gas_nonce SET next_nonce = next_nonce + 1');
    for (let more = 2; more > 0; more -= 1) await sender.send(call, async () => undefined);
    await sender.feeReplacement.run();
    // The nonce could belong to a process that is about to use it.
    assert.equal(await chain.client.getTransactionCount(sent), 6);
    later.advance(31_000);
    await Promise.all([sender.feeReplacement.run(), senderOn(store, later).feeReplacement.run()]);
    assert.equal(await chain.client.getTransactionCount(sent), 9);
  });

  test('the attempts of a gas nonce are found without a scan of all transactions', async () => {
    let plan = '';
    const sender = senderOn({
      ...store,
      query: async (...[sql, values]: Parameters<Store['query']>) => {
        const explain = `EXPLAIN QUERY PLAN ${sql}`;
        const rows = await store.query<{ detail: string }>(explain, values);
        plan = rows.map(({ detail }) => detail).join('; ');
        return await store.query(sql, values);
      },
    } as Store);
    const transaction = await senderOn(store).send(call, async () => undefined);
    assert.deepEqual(await sender.attemptsOf(transaction), [transaction]);
    assert.doesNotMatch(plan, /SCAN/);
  });
});
