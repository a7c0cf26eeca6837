/**
 * Reorganisations of a private Base: after each, the ledger equals the chain, what vanished is sent
 * again, what cannot come back is reversed, and the next payments settle at once.
 */
import assert from 'node:assert/strict';
import { rmSync } from 'node:fs';
import { setTimeout } from 'node:timers/promises';
import { after, before, describe, test } from 'node:test';
import { createWalletClient, http } from 'viem';
import type { Hex } from 'viem';
import { generatePrivateKey, privateKeyToAccount } from 'viem/accounts';
import { BASE_CHAIN, startAnvil } from '../../test/chains/anvil.ts';
import type { AnvilChain } from '../../test/chains/anvil.ts';
import { startFaultProxy } from '../../test/chains/fault-proxy.ts';
import type { FaultProxy } from '../../test/chains/fault-proxy.ts';
import type { Fault } from '../core/faults.ts';
import { usdToNano } from '../core/money.ts';
import {
  authorizationOf,
  cancelAuthorization,
  evmPayment,
  transferArgs,
  transferHeader,
} from '../../test/support/payers.ts';
import { killedAt } from '../../test/support/payments-crash.ts';
import { openFixture, baseRail } from '../../test/support/payments.ts';
import type { Fixture, FixtureOptions } from '../../test/support/payments.ts';

const payTo: Hex = '0x00000000000000000000000000000000000fa12b';
const elsewhere: Hex = '0x00000000000000000000000000000000000e15e1';

describe('reorganisations', () => {
  let chain: AnvilChain;
  let proxy: FaultProxy;
  let fixture: Fixture;
  const gasKey = generatePrivateKey();
  const gas = privateKeyToAccount(gasKey);

  const settingsWith = (changes: object = {}): FixtureOptions['settings'] => ({
    base: baseRail({
      payTo,
      rpcUrl: proxy.url,
      gasKey,
      ...changes,
    }),
  });

  before(async () => {
    chain = await startAnvil();
    proxy = await startFaultProxy(chain.rpcUrl);
    await chain.fund(gas.address, 10n ** 18n);
    fixture = await openFixture({ settings: settingsWith() });
  });

  after(async () => {
    await fixture.close();
    await proxy.stop();
    await chain.stop();
  });

  const rewound = (hours = 0): Promise<unknown> =>
    fixture.store.query(
      `UPDATE payments_topup SET next_check_ms = 0, lease_until_ms = 0,
         vanished_ms = vanished_ms - $1`,
      [hours * 3_600_000],
    );

  /** Checks every payment now. */
  async function look(hours = 0): Promise<void> {
    await rewound(hours);
    await fixture.payments.sweep();
  }

  async function rowOf(wallet: string) {
    const rows = await fixture.store.query<{
      state: string;
      is_watched: bigint;
      reversals: bigint;
      tx_id: Hex;
      raw_tx: Hex;
      failure: string | null;
    }>('SELECT * FROM payments_topup WHERE wallet = $1', [wallet]);
    return rows[0]!;
  }

  /** All that was credited, less what was reversed, is what the receiver has. */
  async function assertLedgerIsChain(): Promise<void> {
    const rows = await fixture.store.query<{ total: bigint | null }>(
      `SELECT SUM(amount) AS total FROM testledger_entry WHERE entry_key LIKE 'eip155:%'`,
    );
    assert.equal((rows[0]?.total ?? 0n) / 1_000n, await chain.balance(payTo));
  }

  async function paid(): Promise<{ header: string; wallet: string }> {
    const payment = await evmPayment(chain, fixture);
    await fixture.payments.headers.topUp(payment.header);
    assert.equal(await fixture.balance(payment.wallet), usdToNano(5));
    return payment;
  }

  for (const depth of [1, 3]) {
    test(`a payment that vanished from a depth of ${depth} is sent again from its bytes`, async () => {
      const { header, wallet } = await paid();
      if (depth > 1) await chain.client.mine({ blocks: depth - 1 });
      const { tx_id: transaction } = await rowOf(wallet);
      const before = await chain.balance(payTo);
      await chain.reorg(depth);
      assert.equal(before - (await chain.balance(payTo)), 5_000_000n, 'the money is gone');
      await look();
      const row = await rowOf(wallet);
      assert.deepEqual([row.state, row.tx_id, row.reversals], ['credited', transaction, 0n]);
      await look();
      await assertLedgerIsChain();
      assert.ok(
        fixture.log.some(
          (line) => line.level === 'error' && /no longer on the chain/.test(line.message),
        ),
      );
      assert.equal((await fixture.payments.headers.topUp(header)).amountNano, usdToNano(5));
      assert.equal(await fixture.balance(wallet), usdToNano(5));
      await chain.client.mine({ blocks: 70 });
      await look();
      assert.equal((await rowOf(wallet)).is_watched, 0n, 'final');
    });
  }

  test('payments right after a reorganisation settle at once, since the lost gas nonce is filled', async () => {
    const first = await paid();
    await chain.reorg(1);
    const second = await paid();
    await look();
    await assertLedgerIsChain();
    assert.equal(await fixture.balance(first.wallet), usdToNano(5));
    assert.equal(await fixture.balance(second.wallet), usdToNano(5));
  });

  test('a vanished payment is noticed while another one waits for its block', async () => {
    const vanished = Promise.withResolvers<'noticed'>();
    const onStep = (step: string): void => {
      if (step === 'vanished') vanished.resolve('noticed');
    };
    const settings = settingsWith({ payTo: elsewhere });
    const watched = await openFixture({ settings, onStep });
    const [waiting, gone] = [await evmPayment(chain, watched), await evmPayment(chain, watched)];
    await watched.payments.headers.topUp(gone.header);
    proxy.fate = (method) => (method === 'eth_sendRawTransaction' ? 'lose-request' : 'pass');
    await assert.rejects(watched.payments.headers.topUp(waiting.header), /not confirmed yet/);
    await chain.reorg(1);
    await watched.store.query('UPDATE payments_topup SET next_check_ms = 0, lease_until_ms = 0');
    const results: string[] = [];
    proxy.fate = async (method) => {
      if (method !== 'eth_sendRawTransaction') return 'pass' as const;
      const late = setTimeout(3_000, 'late' as const, { ref: false });
      results.push(await Promise.race([vanished.promise, late]));
      return 'pass' as const;
    };
    await watched.payments.sweep();
    proxy.fate = () => 'pass';
    assert.deepEqual(new Set(results), new Set(['noticed']));
    await watched.close();
    await fillGap();
  });

  test('a payment that is mined again in another block stays credited, and logs no error', async () => {
    const { wallet } = await paid();
    const { raw_tx: raw } = await rowOf(wallet);
    const lines = fixture.log.length;
    await chain.reorg(1, [[raw, 0]]);
    await look();
    await assertLedgerIsChain();
    const row = await rowOf(wallet);
    assert.deepEqual([row.state, row.reversals], ['credited', 0n]);
    assert.equal(fixture.log.slice(lines).filter(({ level }) => level === 'error').length, 0);
  });

  test('a payment whose gas nonce was used otherwise is sent in a new transaction', async () => {
    const { wallet } = await paid();
    const { tx_id: transaction } = await rowOf(wallet);
    await chain.reorg(1);
    const other = createWalletClient({
      account: gas,
      chain: BASE_CHAIN,
      transport: http(chain.rpcUrl),
    });
    await other.sendTransaction({ to: elsewhere, value: 1n });
    await look();
    await look();
    await assertLedgerIsChain();
    const row = await rowOf(wallet);
    assert.equal(row.state, 'credited');
    assert.notEqual(row.tx_id, transaction);
  });

  test('a vanished payment whose payer moved the money is reversed, and credited when it can be paid again', async () => {
    const { header, wallet } = await paid();
    await fixture.post(wallet, `spent-${wallet}`, -2_000_000_000n);
    const { tx_id: transaction } = await rowOf(wallet);
    await chain.reorg(1);
    const balance = await chain.balance(wallet as Hex);
    await chain.setTokens(wallet as Hex, 1n);
    await look();
    assert.equal((await rowOf(wallet)).state, 'credited', 'it may still come back');
    await look(1);
    const row = await rowOf(wallet);
    assert.deepEqual([row.state, row.reversals, row.tx_id], ['sent', 1n, transaction]);
    assert.equal(await fixture.balance(wallet), 0n, 'what was left is gone, and no more');
    await assert.rejects(fixture.payments.headers.topUp(header), (error: Fault) =>
      ['SETTLEMENT_PENDING', 'SETTLEMENT_FAILED'].includes(error.code),
    );
    assert.ok(fixture.log.some((line) => /reversed after it was spent/.test(line.message)));
    await chain.setTokens(wallet as Hex, balance);
    await fixture.payments.headers.topUp(header);
    assert.equal(await fixture.balance(wallet), usdToNano(5));
    assert.equal((await rowOf(wallet)).state, 'credited');
  });

  test('a vanished payment that a third party makes again stays credited once', async () => {
    const { header, wallet } = await paid();
    const { tx_id: transaction } = await rowOf(wallet);
    await chain.reorg(1);
    await chain.callToken('transferWithAuthorization', transferArgs(header));
    await look();
    const row = await rowOf(wallet);
    assert.deepEqual([row.state, row.reversals], ['credited', 0n]);
    assert.notEqual(row.tx_id, transaction);
    assert.equal(await fixture.balance(wallet), usdToNano(5));
    await fillGap();
  });

  /** The bytes of the payment that another one made are dead; their number is free. */
  async function fillGap(): Promise<void> {
    const next = await paid();
    assert.equal((await rowOf(next.wallet)).state, 'credited');
  }

  /** The same authorization, signed for another amount. */
  async function withOtherAmount(key: Hex, header: string, value: bigint): Promise<string> {
    const authorization = { ...authorizationOf(header).authorization, value: String(value) };
    return await transferHeader(privateKeyToAccount(key), payTo, { authorization });
  }

  describe('a payment that its payer cancels after it was sent', () => {
    /** Sent, not mined, and cancelled in the newest block. */
    async function cancelled(on: Fixture): Promise<{
      readonly header: string;
      readonly wallet: string;
      readonly raw: Hex;
      readonly key: Hex;
    }> {
      const key = generatePrivateKey();
      const { header, wallet } = await evmPayment(chain, on, key);
      proxy.fate = (method) => (method === 'eth_sendRawTransaction' ? 'lose-request' : 'pass');
      await assert.rejects(on.payments.headers.topUp(header), /not confirmed yet/);
      proxy.fate = () => 'pass';
      await cancelAuthorization(chain, key, header);
      const [row] = await on.store.query<{ raw_tx: Hex }>(
        'SELECT raw_tx FROM payments_topup WHERE wallet = $1',
        [wallet],
      );
      return { header, wallet, raw: row!.raw_tx, key };
    }

    test('is credited when a reorganisation drops the cancellation and our transaction is mined', async () => {
      const { header, wallet, raw } = await cancelled(fixture);
      await assert.rejects(fixture.payments.headers.topUp(header), /authorization_cancelled/);
      assert.equal((await rowOf(wallet)).state, 'failed');
      const before = await chain.balance(payTo);
      await chain.reorg(1, [[raw, 0]]);
      await look();
      await look();
      assert.equal(await fixture.balance(wallet), usdToNano(5));
      assert.equal((await chain.balance(payTo)) - before, 5_000_000n);
      assert.equal((await fixture.payments.headers.topUp(header)).amountNano, usdToNano(5));
      assert.ok(fixture.log.some((line) => /A failed payment is on the chain/.test(line.message)));
    });

    test('stays failed, and is watched until the cancellation is final', async () => {
      const { header, wallet } = await cancelled(fixture);
      await assert.rejects(fixture.payments.headers.topUp(header), /authorization_cancelled/);
      await look();
      assert.equal((await rowOf(wallet)).is_watched, 1n);
      assert.equal((await fixture.payments.table.counts()).vanished, 0);
      await chain.client.mine({ blocks: 70 });
      await look();
      const { state, is_watched: isWatched } = await rowOf(wallet);
      assert.deepEqual([state, isWatched], ['failed', 0n]);
      assert.equal(await fixture.balance(wallet), 0n);
      await fillGap();
    });

    test('a cancelled payment keeps its row until it is final, and other terms are refused', async () => {
      const { header, wallet, raw, key } = await cancelled(fixture);
      await assert.rejects(fixture.payments.headers.topUp(header), /authorization_cancelled/);
      await chain.reorg(1);
      const changed = await withOtherAmount(key, header, 6_000_000n);
      await assert.rejects(
        fixture.payments.headers.topUp(changed),
        (error: Fault) => error.code === 'PAYMENT_IN_PROGRESS',
      );
      await chain.client.sendRawTransaction({ serializedTransaction: raw });
      await look();
      await look();
      assert.equal(await fixture.balance(wallet), usdToNano(5));
    });

    test('is pending until the cancellation is as deep as a credit has to be', async () => {
      const confirmations = [{ fromUsd: 0, wait: 3 }];
      const deep = await openFixture({ settings: settingsWith({ confirmations }) });
      const { header, wallet, raw } = await cancelled(deep);
      await assert.rejects(deep.payments.headers.topUp(header), /not confirmed yet/);
      await chain.client.mine({ blocks: 1 });
      await assert.rejects(deep.payments.headers.topUp(header), /not confirmed yet/);
      await chain.reorg(2, [[raw, 0]]);
      await chain.client.mine({ blocks: 2 });
      await deep.payments.headers.topUp(header);
      assert.equal(await deep.balance(wallet), usdToNano(5));
      const other = await cancelled(deep);
      await chain.client.mine({ blocks: 2 });
      await assert.rejects(deep.payments.headers.topUp(other.header), /authorization_cancelled/);
      await deep.close();
      await fillGap();
    });
  });

  describe('the required depth of an amount', () => {
    const rules = [
      { fromUsd: 0, wait: 1 },
      { fromUsd: 5, wait: 3 },
    ] as const;

    async function under(
      confirmations: object,
      work: (deep: Fixture) => Promise<void>,
    ): Promise<void> {
      const deep = await openFixture({ settings: settingsWith({ confirmations }) });
      await work(deep);
      await deep.close();
    }

    test('a payment is pending until it has enough blocks', async () => {
      await under(rules, async (deep) => {
        const { header, wallet } = await evmPayment(chain, deep);
        const pending = /not confirmed yet/;
        await assert.rejects(deep.payments.headers.topUp(header), pending);
        await chain.client.mine({ blocks: 1 });
        await assert.rejects(deep.payments.headers.topUp(header), pending);
        assert.equal(await deep.balance(wallet), 0n);
        await chain.client.mine({ blocks: 1 });
        await deep.payments.headers.topUp(header);
        assert.equal(await deep.balance(wallet), usdToNano(5));
      });
    });

    test('a smaller amount is credited at once', async () => {
      await under([rules[0], { fromUsd: 5.000001, wait: 3 }], async (deep) => {
        const { header, wallet } = await evmPayment(chain, deep);
        await deep.payments.headers.topUp(header);
        assert.equal(await deep.balance(wallet), usdToNano(5));
      });
    });

    for (const [wait, blocks] of [
      ['safe', 33],
      ['finalized', 65],
    ] as const) {
      test(`${wait}: the sweep credits when the chain says so`, async () => {
        await under([{ fromUsd: 0, wait }], async (deep) => {
          const { header, wallet } = await evmPayment(chain, deep);
          await assert.rejects(deep.payments.headers.topUp(header), /not confirmed yet/);
          await chain.client.mine({ blocks });
          await deep.store.query('UPDATE payments_topup SET next_check_ms = 0');
          await deep.payments.sweep();
          assert.equal(await deep.balance(wallet), usdToNano(5));
        });
      });
    }
  });

  test('a node that is behind the credited block reverses nothing', async () => {
    const { wallet } = await paid();
    await fixture.store.query(
      'UPDATE payments_topup SET credited_height = credited_height + 100 WHERE wallet = $1',
      [wallet],
    );
    await chain.client.request({ method: 'anvil_rollback', params: [1] } as never);
    await look();
    await look(1);
    assert.equal((await rowOf(wallet)).state, 'credited');
    await fixture.store.query(
      'UPDATE payments_topup SET credited_height = credited_height - 100 WHERE wallet = $1',
      [wallet],
    );
    await chain.client.mine({ blocks: 1 });
    await look();
    await look();
    assert.equal((await rowOf(wallet)).state, 'credited');
    await fillGap();
  });

  test('a refund that vanished is sent again, once', async () => {
    const treasuryKey = generatePrivateKey();
    await chain.mint(privateKeyToAccount(treasuryKey).address, 50_000_000n);
    const treasury = await openFixture({ settings: settingsWith({ refundKey: treasuryKey }) });
    const { header, wallet } = await evmPayment(chain, treasury);
    await treasury.payments.headers.topUp(header);
    await chain.client.mine({ blocks: 70 });
    const before = await chain.balance(wallet as Hex);
    const refund = await treasury.payments.refunds.refund(wallet, usdToNano(2));
    assert.equal(refund.state, 'paid');
    await chain.reorg(1);
    assert.equal(await chain.balance(wallet as Hex), before);
    for (let round = 0; round < 3; round += 1) {
      await treasury.store.query('UPDATE payments_refund SET next_check_ms = 0');
      await treasury.payments.sweep();
    }
    assert.equal((await treasury.payments.refunds.state(refund.refundId)).state, 'paid');
    assert.equal((await chain.balance(wallet as Hex)) - before, 2_000_000n);
    assert.equal(await treasury.balance(wallet), usdToNano(3));
    assert.ok(treasury.log.some((line) => /refund is no longer on the chain/.test(line.message)));
    await chain.client.mine({ blocks: 70 });
    await treasury.store.query('UPDATE payments_refund SET next_check_ms = 0');
    await treasury.payments.sweep();
    const rows = await treasury.store.query('SELECT 1 FROM payments_refund WHERE is_watched = 1');
    assert.equal(rows.length, 0, 'final');
    await treasury.close();
  });

  for (const dieAt of ['vanished', 'resent', 'reversed'] as const) {
    test(`kill -9 when a credit has ${dieAt}: the next process ends it once`, async () => {
      const first = await openFixture({ settings: settingsWith() });
      const { folder } = first;
      const { header, wallet } = await evmPayment(chain, first);
      await first.payments.headers.topUp(header);
      const funds = await chain.balance(wallet as Hex);
      await chain.reorg(1);
      if (dieAt === 'reversed') await chain.setTokens(wallet as Hex, 1n);
      await first.store.query(`UPDATE payments_topup SET next_check_ms = 0, vanished_ms = $1`, [
        dieAt === 'reversed' ? 1 : null,
      ]);
      const settings = settingsWith();
      assert.equal(await killedAt({ folder, settings, dieAt }), 'SIGKILL');
      const second = await openFixture({ settings, folder });
      if (dieAt === 'reversed') {
        assert.equal(await second.balance(wallet), 0n);
        await chain.setTokens(wallet as Hex, funds + 5_000_000n);
      }
      for (let round = 0; round < 3; round += 1) {
        await second.store.query('UPDATE payments_topup SET next_check_ms = 0, lease_until_ms = 0');
        await second.payments.sweep();
      }
      assert.equal(await second.balance(wallet), usdToNano(5));
      assert.equal(await second.postings(), dieAt === 'reversed' ? 3 : 1);
      const rows = await second.store.query<{ state: string }>('SELECT state FROM payments_topup');
      assert.deepEqual(rows, [{ state: 'credited' }]);
      await second.close();
      await first.close();
      rmSync(folder, { recursive: true, force: true });
    });
  }

  // The last one: it moves the clock of the chain past what the other payments are signed for.
  test('a vanished payment that expired is reversed, except for spent credit', async () => {
    const { header, wallet } = await paid();
    await fixture.post(wallet, `spent-${wallet}`, -1_500_000_000n);
    await chain.reorg(1);
    proxy.fate = (method) => (method === 'eth_sendRawTransaction' ? 'lose-request' : 'pass');
    await look();
    assert.equal((await rowOf(wallet)).state, 'credited');
    await chain.client.increaseTime({ seconds: 1_000 });
    await chain.client.mine({ blocks: 1 });
    await look(1);
    await look();
    proxy.fate = () => 'pass';
    const row = await rowOf(wallet);
    assert.deepEqual([row.state, row.reversals], ['failed', 1n]);
    assert.equal(row.failure, 'authorization_expired');
    assert.equal(await fixture.balance(wallet), 0n);
    await assert.rejects(
      fixture.payments.headers.topUp(header),
      /was not settled \(authorization_expired\)/,
    );
    await look();
    assert.equal((await rowOf(wallet)).reversals, 1n, 'once');
    assert.deepEqual((await fixture.payments.table.counts()).vanished, 0);
  });
});
