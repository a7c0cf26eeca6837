/**
 * The same on both databases: two processes that share one are given the same payments, nonces and
 * refunds at once, and each counts once.
 */
import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { createSIWxPayload, encodeSIWxHeader } from '@x402/extensions/sign-in-with-x';
import type { Hex } from 'viem';
import { generatePrivateKey, privateKeyToAccount } from 'viem/accounts';
import { startAnvil } from '../../test/chains/anvil.ts';
import type { AnvilChain } from '../../test/chains/anvil.ts';
import { type StoreFixture, onEachStore } from '../../test/databases/stores.ts';
import { usdToNano } from '../core/money.ts';
import { BASE } from './networks.ts';
import { evmPayment } from '../../test/support/payers.ts';
import { openFixture, baseRail, paidAtLast } from '../../test/support/payments.ts';
import type { Fixture } from '../../test/support/payments.ts';

const payTo: Hex = '0x00000000000000000000000000000000000fa12b';

describe('two processes', () => {
  onEachStore('payments', bothSuites);
});

function bothSuites(fixture: StoreFixture): void {
  let chain: AnvilChain;
  let setups: readonly [Fixture, Fixture];
  const treasuryKey = generatePrivateKey();

  before(async () => {
    chain = await startAnvil();
    const gasKey = generatePrivateKey();
    await chain.fund(privateKeyToAccount(gasKey).address, 10n ** 18n);
    await chain.mint(privateKeyToAccount(treasuryKey).address, 100_000_000n);
    const databaseUrl = await fixture.freshUrl();
    const settings = {
      base: baseRail({ payTo, rpcUrl: chain.rpcUrl, gasKey, refundKey: treasuryKey }),
    } as const;
    setups = [
      await openFixture({ settings, databaseUrl }),
      await openFixture({ settings, databaseUrl }),
    ];
  });

  after(async () => {
    for (const setup of setups) await setup.close();
    await chain.stop();
  });

  async function pay(): Promise<{ header: string; wallet: Hex }> {
    const { header, wallet } = await evmPayment(chain, setups[0]);
    return { header, wallet: wallet as Hex }; // an EVM address
  }

  test('concurrent requests cannot create more than 100 tokens of a wallet', async () => {
    const { address } = privateKeyToAccount(generatePrivateKey());
    const noLimits = { usdNano: undefined, diemNano: undefined };
    const asked = Array.from({ length: 120 }, (_, at) =>
      setups[at % 2 === 0 ? 0 : 1].payments.sessions.mint(address.toLowerCase(), noLimits),
    );
    const settled = await Promise.allSettled(asked);
    assert.equal(settled.filter(({ status }) => status === 'fulfilled').length, 100);
  });

  test('four payments given to both at once are credited once each', async () => {
    const payments = [await pay(), await pay(), await pay(), await pay()];
    const all = payments.flatMap(({ header }) =>
      setups.map(async (setup) => await setup.payments.headers.topUp(header)),
    );
    // A collision of gas numbers may leave one pending; the same header finishes it.
    await Promise.allSettled(all);
    for (const { header, wallet } of payments) {
      const first = await paidAtLast(setups[0], header);
      const again = await setups[1].payments.headers.topUp(header);
      assert.deepEqual(again, { ...first, newBalanceNano: undefined });
      assert.equal(await setups[1].balance(wallet), usdToNano(5));
    }
    assert.equal(await chain.balance(payTo), 20_000_000n);
    assert.equal(await setups[0].postings(), 4);
  });

  test('a sign-in given to both at once is accepted once', async () => {
    const account = privateKeyToAccount(generatePrivateKey());
    const { body } = await setups[0].payments.requirements.discovery({
      path: '/api/v1/models',
      description: 'x',
    });
    const { extensions } = body as {
      extensions: { 'sign-in-with-x': { info: Parameters<typeof createSIWxPayload>[0] } };
    };
    const { info } = extensions['sign-in-with-x'];
    const proof = await createSIWxPayload(
      { ...info, chainId: BASE, type: 'eip191' },
      account,
      info.uri,
    );
    const header = encodeSIWxHeader(proof);
    const results = await Promise.allSettled(
      [0, 1, 0, 1].map(
        async (index) => await setups[index === 0 ? 0 : 1].payments.signIn.verify(header, ''),
      ),
    );
    assert.equal(results.filter(({ status }) => status === 'fulfilled').length, 1);
  });

  test('a wallet token of one process is good at the other, until either revokes it', async () => {
    const wallet = privateKeyToAccount(generatePrivateKey()).address.toLowerCase();
    const limits = { usdNano: undefined, diemNano: undefined };
    const { id, token } = await setups[0].payments.sessions.mint(wallet, limits);
    const { expiresMs, ...verified } = await setups[1].payments.sessions.verify(token);
    assert.deepEqual(verified, { wallet, capId: undefined });
    assert.ok(expiresMs > Date.now());
    assert.equal(await setups[1].payments.sessions.revoke(wallet, id), true);
    await assert.rejects(setups[0].payments.sessions.verify(token), /revoked/);
  });

  test('a credit that vanished is reversed once, and credited once when it is back', async () => {
    const { header, wallet } = await pay();
    await paidAtLast(setups[0], header);
    const postings = await setups[0].postings();
    await chain.reorg(1);
    const funds = await chain.balance(wallet);
    await chain.setTokens(wallet, 0n);
    const bothLook = async (): Promise<void> => {
      await setups[0].store.query(
        `UPDATE payments_topup SET next_check_ms = 0, lease_until_ms = 0,
           vanished_ms = vanished_ms - 100000`,
      );
      await Promise.all(setups.map(async (setup) => await setup.payments.sweep()));
    };
    await bothLook();
    assert.equal(await setups[1].balance(wallet), usdToNano(5), 'it may still come back');
    await bothLook();
    assert.equal(await setups[1].balance(wallet), 0n);
    assert.equal(await setups[0].postings(), postings + 1);
    await chain.setTokens(wallet, funds);
    await Promise.all(setups.map(async (setup) => await paidAtLast(setup, header)));
    assert.equal(await setups[0].balance(wallet), usdToNano(5));
    assert.equal(await setups[0].postings(), postings + 2);
    await chain.client.mine({ blocks: 70 });
    await bothLook();
    assert.deepEqual(await setups[0].payments.table.counts(), {
      watched: 0,
      vanished: 0,
      reversed: 1,
    });
  });

  test('a refund of one process is not paid again by the sweep of the other', async () => {
    const { header, wallet } = await pay();
    await paidAtLast(setups[0], header);
    await chain.client.mine({ blocks: 70 });
    const before = await chain.balance(wallet);
    const [refund] = await Promise.all([
      setups[0].payments.refunds.refund(wallet, usdToNano(3)),
      setups[1].payments.sweep(),
    ]);
    await setups[1].payments.sweep();
    assert.equal((await setups[1].payments.refunds.state(refund.refundId)).state, 'paid');
    assert.equal((await chain.balance(wallet)) - before, 3_000_000n);
    assert.equal(await setups[1].balance(wallet), usdToNano(2));
  });
}
