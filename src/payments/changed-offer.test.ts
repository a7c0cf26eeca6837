/**
 * A receiver, token or key changes while a payment is pending: the payment is checked against the
 * offer that it was made for, and its stored response outlives that offer.
 */
import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { createKeyPairSignerFromPrivateKeyBytes, generateKeyPairSigner } from '@solana/kit';
import type { KeyPairSigner } from '@solana/kit';
import type { Hex } from 'viem';
import { generatePrivateKey, privateKeyToAccount } from 'viem/accounts';
import { startAnvil } from '../../test/chains/anvil.ts';
import type { AnvilChain } from '../../test/chains/anvil.ts';
import { startFaultProxy } from '../../test/chains/fault-proxy.ts';
import type { FaultProxy } from '../../test/chains/fault-proxy.ts';
import { startSolana } from '../../test/chains/solana.ts';
import type { SolanaChain } from '../../test/chains/solana.ts';
import { systemIds } from '../core/ids.ts';
import { usdToNano } from '../core/money.ts';
import { evmPayment, solanaPayment } from '../../test/support/payers.ts';
import { openFixture, baseRail, solanaRail } from '../../test/support/payments.ts';
import type { Fixture, FixtureOptions } from '../../test/support/payments.ts';

const OLD: Hex = '0x00000000000000000000000000000000000fa12b';
const NEW: Hex = '0x00000000000000000000000000000000000fa12c';

describe('a changed offer', () => {
  let anvil: AnvilChain;
  let solana: SolanaChain;
  let proxies: { readonly base: FaultProxy; readonly solana: FaultProxy };
  let oldOwner: KeyPairSigner;
  let newOwner: KeyPairSigner;
  const gasKey = generatePrivateKey();
  const feePayerKey = systemIds().hex(32);

  before(async () => {
    anvil = await startAnvil();
    solana = await startSolana();
    proxies = {
      base: await startFaultProxy(anvil.rpcUrl),
      solana: await startFaultProxy(solana.rpcUrl),
    };
    [oldOwner, newOwner] = [await generateKeyPairSigner(), await generateKeyPairSigner()];
    const feePayer = await createKeyPairSignerFromPrivateKeyBytes(Buffer.from(feePayerKey, 'hex'));
    await anvil.fund(privateKeyToAccount(gasKey).address, 10n ** 18n);
    solana.airdrop(feePayer.address, 10_000_000_000n);
    await solana.setTokens(oldOwner.address, 0n);
    await solana.setTokens(newOwner.address, 0n);
  });

  after(async () => {
    await proxies.base.stop();
    await proxies.solana.stop();
    await anvil.stop();
    await solana.stop();
  });

  const offering = (payTo: Hex, owner: KeyPairSigner): FixtureOptions['settings'] => ({
    base: baseRail({
      payTo,
      rpcUrl: proxies.base.url,
      gasKey,
    }),
    solana: solanaRail({
      payTo: owner.address,
      rpcUrl: proxies.solana.url,
      feePayerKey,
    }),
  });

  const pay = (rail: 'base' | 'solana', fixture: Fixture) =>
    rail === 'base' ? evmPayment(anvil, fixture) : solanaPayment(solana, fixture);

  for (const rail of ['base', 'solana'] as const) {
    const broadcast = rail === 'base' ? 'eth_sendRawTransaction' : 'sendTransaction';
    test(`${rail}: a pending payment to the old receiver is finished and credited`, async () => {
      const first = await openFixture({ settings: offering(OLD, oldOwner) });
      const stored = await pay(rail, first);
      const pending = await pay(rail, first);
      const unsent = await pay(rail, first);
      const late = await pay(rail, first);
      const receipt = await first.payments.headers.topUp(stored.header);
      proxies[rail].fate = (method) => (method === broadcast ? 'lose-request' : 'pass');
      await assert.rejects(first.payments.headers.topUp(pending.header), /not confirmed yet/);
      await assert.rejects(first.payments.headers.topUp(unsent.header), /not confirmed yet/);
      // As if the process had died before it signed: the row is checked and sent by the next one.
      await first.store.query(
        `UPDATE payments_topup SET state = 'open', tx_id = NULL, raw_tx = NULL, lease_until_ms = 0,
           next_check_ms = 0 WHERE wallet = $1`,
        [unsent.wallet],
      );
      proxies[rail].fate = () => 'pass';
      const second = await openFixture({ settings: offering(NEW, newOwner), folder: first.folder });
      await second.store.query('UPDATE payments_topup SET lease_until_ms = 0, next_check_ms = 0');
      await second.payments.sweep();
      assert.equal(await second.balance(unsent.wallet), usdToNano(5), 'by the sweep');
      const again = await second.payments.headers.topUp(pending.header);
      assert.equal(again.amountNano, usdToNano(5));
      assert.equal(await second.balance(pending.wallet), usdToNano(5));
      const repeated = await second.payments.headers.topUp(stored.header);
      assert.deepEqual(repeated, { ...receipt, newBalanceNano: undefined }, 'the stored answer');
      await assert.rejects(
        second.payments.headers.topUp(late.header),
        /must go to/,
        'never seen before',
      );
      await second.close();
      await first.close();
    });
  }

  test('a row of an old version without an offer is checked against its authorization', async () => {
    const first = await openFixture({ settings: offering(OLD, oldOwner) });
    const pending = await evmPayment(anvil, first);
    proxies.base.fate = (method) => (method === 'eth_sendRawTransaction' ? 'lose-request' : 'pass');
    await assert.rejects(first.payments.headers.topUp(pending.header), /not confirmed yet/);
    proxies.base.fate = () => 'pass';
    await first.store.query(
      `UPDATE payments_topup SET offer = NULL, start_block = NULL, state = 'open', tx_id = NULL,
         raw_tx = NULL, lease_until_ms = 0`,
    );
    const second = await openFixture({ settings: offering(NEW, newOwner), folder: first.folder });
    const receipt = await second.payments.headers.topUp(pending.header);
    assert.equal(receipt.amountNano, usdToNano(5));
    assert.equal(await second.balance(pending.wallet), usdToNano(5));
    await second.close();
    await first.close();
  });
});
