/** A token whose amounts would be credited wrongly is not taken: at the start, by the check, or later. */
import assert from 'node:assert/strict';
import { after, before, beforeEach, describe, test } from 'node:test';
import { generateKeyPairSigner } from '@solana/kit';
import { TOKEN_PROGRAM_ADDRESS } from '@solana-program/token';
import { encodeFunctionResult, parseAbi } from 'viem';
import type { Hex } from 'viem';
import { generatePrivateKey, privateKeyToAccount } from 'viem/accounts';
import { type AlteredNode, rpcError, startAlteredNode } from '../../test/chains/altered-node.ts';
import { type AnvilChain, startAnvil } from '../../test/chains/anvil.ts';
import { openFixture, TEST_SETTINGS } from '../../test/support/payments.ts';
import { systemClock } from '../core/clock.ts';
import type { Fault } from '../core/faults.ts';
import { silentLog } from '../core/log.ts';
import { transferTypedData } from './evm/chain.ts';
import { BASE, SOLANA } from './networks.ts';
import { checkRails } from './payments.ts';

const DECIMALS_CALL = '0x313ce567';
const DECIMALS_ABI = parseAbi(['function decimals() view returns (uint8)']);
const MINT_BYTES = 82;
const MINT_DECIMALS_AT = 44;
const MINT_INITIALIZED_AT = 45;

describe('decimals of the token', () => {
  const asset: Hex = '0x00000000000000000000000000000000000000A5';
  const payTo: Hex = '0x00000000000000000000000000000000000fa12b';
  const gasKey = generatePrivateKey();
  let chain: AnvilChain;
  let node: AlteredNode;
  let decimals: number | undefined;

  const base = () => ({
    network: 'eip155:8453' as const,
    asset,
    payTo,
    rpcUrl: node.url,
    gasKey,
    maxGas: 300_000,
    maxFeeGwei: 50,
    warnBelowEth: 0.002,
  });

  before(async () => {
    chain = await startAnvil();
    await chain.fund(privateKeyToAccount(gasKey).address, 10n ** 18n);
    node = await startAlteredNode(chain.rpcUrl);
    node.alter = async (call, ask) => {
      if (!JSON.stringify(call.params).includes(DECIMALS_CALL)) return await ask();
      if (decimals === undefined) return rpcError(-32_603, 'away');
      return { result: encodeFunctionResult({ abi: DECIMALS_ABI, result: decimals }) };
    };
  });

  beforeEach(() => {
    decimals = undefined;
  });

  after(async () => {
    await node.stop();
    await chain.stop();
  });

  test('Base: a token of 18 decimals is refused at the start and by the check', async () => {
    decimals = 18;
    await assert.rejects(
      openFixture({ settings: { base: base() } }),
      /has 18 decimals; it must have 6/,
    );
    const [health] = await checkRails({
      settings: { ...TEST_SETTINGS, base: base() },
      clock: systemClock(),
      log: silentLog,
      openStore: async () => undefined,
    });
    assert.equal(health?.isReady, false);
    assert.match(health?.problems.join() ?? '', /has 18 decimals/);
  });

  test('Base: a rail takes no payment until it has read the decimals', async () => {
    const fixture = await openFixture({ settings: { base: base() } });
    const account = privateKeyToAccount(generatePrivateKey());
    const validBefore = BigInt(Math.floor(Date.now() / 1000) + 300);
    const transfer = {
      from: account.address,
      to: payTo,
      value: 5_000_000n,
      validAfter: 0n,
      validBefore,
      nonce: `0x${'5a'.repeat(32)}` as const,
    };
    const offer = { network: BASE, asset, payTo, extra: { name: 'USD Coin', version: '2' } };
    const signature = await account.signTypedData(transferTypedData(offer, transfer));
    const authorization = {
      ...transfer,
      value: '5000000',
      validAfter: '0',
      validBefore: validBefore.toString(),
    };
    const accepted = { scheme: 'exact', network: BASE };
    const payment = { x402Version: 2, accepted, payload: { authorization, signature } };
    const header = Buffer.from(JSON.stringify(payment)).toString('base64');
    const refused = async (): Promise<Fault> =>
      await fixture.payments.headers.topUp(header).then(
        () => assert.fail('it was credited'),
        (error: Fault) => error,
      );
    assert.equal((await refused()).status, 503);
    assert.match(
      (await fixture.payments.railMonitor.check())[0]?.problems.join() ?? '',
      /cannot be read/,
    );
    decimals = 9;
    assert.equal((await refused()).status, 503);
    assert.equal((await fixture.payments.railMonitor.check())[0]?.isReady, false);
    const rows = await fixture.store.query('SELECT payment_key FROM payments_topup');
    assert.deepEqual(rows, []);
    await fixture.close();
  });

  test('Base: a token of 6 decimals is accepted', async () => {
    decimals = 6;
    const fixture = await openFixture({ settings: { base: base() } });
    assert.equal((await fixture.payments.railMonitor.check())[0]?.isReady, true);
    await fixture.close();
  });

  test('Solana: a mint of 9 decimals is refused at the start', async () => {
    const mint = Buffer.alloc(MINT_BYTES);
    mint[MINT_DECIMALS_AT] = 9;
    mint[MINT_INITIALIZED_AT] = 1;
    const account = {
      data: [mint.toString('base64'), 'base64'],
      executable: false,
      lamports: 1,
      owner: TOKEN_PROGRAM_ADDRESS,
      rentEpoch: 0,
      space: MINT_BYTES,
    };
    const other = await startAlteredNode(chain.rpcUrl);
    other.alter = async () => ({ result: { context: { slot: 1 }, value: account } });
    const [owner, token] = [await generateKeyPairSigner(), await generateKeyPairSigner()];
    const solana = {
      network: SOLANA as 'solana:5eykt4UsFv8P8NJdTREpY1vzqKqZKvdp',
      asset: token.address,
      payTo: owner.address,
      rpcUrl: other.url,
      feePayerKey: 'ab'.repeat(32),
      maxPriorityFeeMicroLamports: 1,
      maxComputeUnits: 200_000,
      warnBelowSol: 0,
    };
    await assert.rejects(openFixture({ settings: { solana } }), /has 9 decimals; it must have 6/);
    await other.stop();
  });
});
