/**
 * `kill -9` at the four points of a top-up, on both rails: a new process that is sent the same
 * header twice at once credits exactly once, and the ledger equals the chain.
 */
import assert from 'node:assert/strict';
import { rmSync } from 'node:fs';
import { after, before, describe, test } from 'node:test';
import { createKeyPairSignerFromPrivateKeyBytes, generateKeyPairSigner } from '@solana/kit';
import type { KeyPairSigner } from '@solana/kit';
import type { Hex } from 'viem';
import { generatePrivateKey, privateKeyToAccount } from 'viem/accounts';
import { startAnvil } from '../../test/chains/anvil.ts';
import type { AnvilChain } from '../../test/chains/anvil.ts';
import { startSolana } from '../../test/chains/solana.ts';
import type { SolanaChain } from '../../test/chains/solana.ts';
import { systemIds } from '../core/ids.ts';
import { usdToNano } from '../core/money.ts';
import { killedAt } from '../../test/support/payments-crash.ts';
import { evmPayment, solanaPayment } from '../../test/support/payers.ts';
import type { TestPayment } from '../../test/support/payers.ts';
import { openFixture, paidAtLast, baseRail, solanaRail } from '../../test/support/payments.ts';
import type { Fixture, FixtureOptions } from '../../test/support/payments.ts';

const payTo: Hex = '0x00000000000000000000000000000000000fa12b';
const STEPS = ['opened', 'journaled', 'settled', 'credited'] as const;

describe('kill -9', () => {
  let anvil: AnvilChain;
  let solana: SolanaChain;
  let receiver: KeyPairSigner;
  let settings: FixtureOptions['settings'];

  before(async () => {
    anvil = await startAnvil();
    solana = await startSolana();
    receiver = await generateKeyPairSigner();
    const gasKey = generatePrivateKey();
    const feePayerKey = systemIds().hex(32);
    const feePayer = await createKeyPairSignerFromPrivateKeyBytes(Buffer.from(feePayerKey, 'hex'));
    await anvil.fund(privateKeyToAccount(gasKey).address, 10n ** 18n);
    solana.airdrop(feePayer.address, 10_000_000_000n);
    await solana.setTokens(receiver.address, 0n);
    settings = {
      base: baseRail({
        payTo,
        rpcUrl: anvil.rpcUrl,
        gasKey,
      }),
      solana: solanaRail({
        payTo: receiver.address,
        rpcUrl: solana.rpcUrl,
        feePayerKey,
      }),
    };
  });

  after(async () => {
    await anvil.stop();
    await solana.stop();
  });

  const payment = (rail: 'base' | 'solana', fixture: Fixture): Promise<TestPayment> =>
    rail === 'base' ? evmPayment(anvil, fixture) : solanaPayment(solana, fixture);

  const received = async (rail: 'base' | 'solana'): Promise<bigint> =>
    rail === 'base' ? await anvil.balance(payTo) : await solana.tokens(receiver.address);

  for (const rail of ['base', 'solana'] as const) {
    for (const dieAt of STEPS) {
      test(`${rail}, ${dieAt}: one credit after the restart`, async () => {
        const first = await openFixture({ settings });
        const { folder } = first;
        const before = await received(rail);
        const { header, wallet } = await payment(rail, first);
        const killed = await killedAt({ folder, settings, header, dieAt });
        assert.equal(killed, 'SIGKILL');
        const second = await openFixture({ settings, folder });
        const answers = await Promise.all([paidAtLast(second, header), paidAtLast(second, header)]);
        assert.deepEqual(answers[0], answers[1]);
        assert.equal(await second.balance(wallet), usdToNano(5));
        assert.equal((await received(rail)) - before, 5_000_000n);
        assert.equal(await second.postings(), 1);
        await second.close();
        await first.close();
        rmSync(folder, { recursive: true, force: true });
      });
    }
  }

  test('the sweep of the next process completes a killed payment without a retry', async () => {
    const first = await openFixture({ settings });
    const { folder } = first;
    const { header, wallet } = await payment('base', first);
    await killedAt({ folder, settings, header, dieAt: 'settled' });
    const second = await openFixture({ settings, folder });
    // The lease of the dead process runs out first.
    await second.store.query('UPDATE payments_topup SET lease_until_ms = 0');
    await second.payments.sweep();
    assert.equal(await second.balance(wallet), usdToNano(5));
    await second.close();
    await first.close();
  });
});
