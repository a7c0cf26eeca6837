/** Several nodes of a chain: the next one is called if one fails, and two must agree about money. */
import assert from 'node:assert/strict';
import { after, afterEach, before, describe, test } from 'node:test';
import { createKeyPairSignerFromPrivateKeyBytes, generateKeyPairSigner } from '@solana/kit';
import { x402Client } from '@x402/core/client';
import { decodePaymentRequiredHeader } from '@x402/core/http';
import { ExactEvmScheme } from '@x402/evm/exact/client';
import { ExactSvmScheme } from '@x402/svm/exact/client';
import { generatePrivateKey, privateKeyToAccount } from 'viem/accounts';
import { type Hex, keccak256, numberToHex } from 'viem';
import { rpcError, startAlteredNode } from '../../test/chains/altered-node.ts';
import type { AlteredNode } from '../../test/chains/altered-node.ts';
import { startAnvil } from '../../test/chains/anvil.ts';
import type { AnvilChain } from '../../test/chains/anvil.ts';
import { startSolana } from '../../test/chains/solana.ts';
import type { SolanaChain } from '../../test/chains/solana.ts';
import { type Clock, systemClock } from '../core/clock.ts';
import { Fault } from '../core/faults.ts';
import { systemIds } from '../core/ids.ts';
import { usdToNano } from '../core/money.ts';
import { silentLog } from '../core/log.ts';
import { BASE, SOLANA } from './networks.ts';
import { openRails } from './rails.ts';
import { transferArgs } from '../../test/support/payers.ts';
import { until } from '../../test/support/until.ts';
import { openFixture, paidAtLast, TEST_SETTINGS, solanaRail } from '../../test/support/payments.ts';
import type { Fixture, FixtureOptions } from '../../test/support/payments.ts';

const payTo: Hex = '0x00000000000000000000000000000000000fa12b';
const isPending = (error: unknown): boolean =>
  error instanceof Fault && error.code === 'SETTLEMENT_PENDING';

/** A node that accepts no transaction. */
const takingNothing: AlteredNode['alter'] = async ({ method }, ask) =>
  ['eth_sendRawTransaction', 'sendTransaction'].includes(method)
    ? rpcError(-32_005, 'limit exceeded')
    : await ask();

let laterMs = 0;
const clock = { ...systemClock(), nowMs: () => Date.now() + laterMs };
const opened: Fixture[] = [];

async function open(settings: FixtureOptions['settings'], by: Clock = clock): Promise<Fixture> {
  const fixture = await openFixture({ settings, clock: by });
  opened.push(fixture);
  return fixture;
}

afterEach(async () => {
  laterMs = 0;
  for (const fixture of opened.splice(0)) await fixture.close();
});

async function headerOf(fixture: Fixture, client: x402Client, network: string): Promise<string> {
  client.setSpendControls({ maxAmountPerPayment: '$25' });
  const answer = await fixture.payments.requirements.topUp({
    path: '/api/v1/x402/top-up',
    description: 'x',
  });
  const required = decodePaymentRequiredHeader(answer.header);
  const accepts = required.accepts.filter((one) => one.network === network);
  const payload = await client.createPaymentPayload({ ...required, accepts });
  return Buffer.from(JSON.stringify(payload)).toString('base64');
}

/** Two chains with one name: what happens on one of them, the node of the other does not know. */
describe('nodes of Base', () => {
  let one: AnvilChain;
  let other: AnvilChain;
  let first: AlteredNode;
  let second: AlteredNode;
  /** Two more nodes of the first chain. */
  let third: AlteredNode;
  let fourth: AlteredNode;

  before(async () => {
    [one, other] = await Promise.all([startAnvil(), startAnvil()]);
    first = await startAlteredNode(one.rpcUrl);
    second = await startAlteredNode(other.rpcUrl);
    third = await startAlteredNode(one.rpcUrl);
    fourth = await startAlteredNode(one.rpcUrl);
  });
  afterEach(() => {
    for (const node of [first, second, third, fourth]) {
      node.alter = async (_call, ask) => await ask();
    }
  });
  after(async () => {
    for (const node of [first, second, third, fourth]) await node.stop();
    await one.stop();
    await other.stop();
  });

  async function openBase(...rpcUrl: string[]): Promise<Fixture> {
    return await open(await baseOf(rpcUrl));
  }

  /** With a gas key whose numbers are the same on both chains. */
  async function baseOf(rpcUrl: readonly string[]): Promise<FixtureOptions['settings']> {
    const gasKey = generatePrivateKey();
    for (const chain of [one, other]) {
      await chain.fund(privateKeyToAccount(gasKey).address, 10n ** 18n);
    }
    const base = { network: BASE, payTo, rpcUrl, gasKey, maxGas: 300_000 } as const;
    return { base: { ...base, maxFeeGwei: 50, warnBelowEth: 0 } };
  }

  async function payment(fixture: Fixture): Promise<{ header: string; wallet: string }> {
    const account = privateKeyToAccount(generatePrivateKey());
    for (const chain of [one, other]) await chain.mint(account.address, 100_000_000n);
    const client = new x402Client().register(BASE, new ExactEvmScheme(account));
    return {
      header: await headerOf(fixture, client, BASE),
      wallet: account.address.toLowerCase(),
    };
  }

  test('a payment that only one node reports is credited once both report it', async () => {
    const fixture = await openBase(first.url, second.url);
    const { header, wallet } = await payment(fixture);
    second.alter = takingNothing;
    await assert.rejects(fixture.payments.headers.topUp(header), isPending);
    await assert.rejects(fixture.payments.headers.topUp(header), isPending);
    assert.equal(await fixture.balance(wallet), 0n);
    assert.ok(fixture.log.some(({ message }) => message.includes('contradict')));
    assert.ok((fixture.payments.contradictions.get(BASE) ?? 0) >= 2);
    const [row] = await fixture.store.query<{ raw_tx: Hex }>('SELECT raw_tx FROM payments_topup');
    await other.client.sendRawTransaction({ serializedTransaction: row!.raw_tx });
    await fixture.payments.headers.topUp(header);
    assert.equal(await fixture.balance(wallet), usdToNano(5));
  });

  test('the report of a lying node is not credited while the honest node is slow', async () => {
    // The time that a look waits for other nodes is a tenth of a second instead of two.
    const real = systemClock();
    const impatient: Clock = {
      ...real,
      after: (ms, work) => real.after(ms === 2_000 ? 100 : ms, work),
    };
    const fixture = await open(await baseOf([second.url, first.url]), impatient);
    const { header, wallet } = await payment(fixture);
    const before = await one.balance(payTo);
    first.alter = async (call, ask) => {
      await real.sleep(300);
      return await takingNothing(call, ask);
    };
    await assert.rejects(fixture.payments.headers.topUp(header), isPending);
    await until(
      () => (fixture.payments.contradictions.get(BASE) ?? 0) > 0,
      'the honest node to contradict',
    );
    assert.equal(await one.balance(payTo), before, 'nothing arrived');
    assert.equal(await fixture.balance(wallet), 0n);
    const [row] = await fixture.store.query<{ state: string; raw_tx: Hex }>(
      'SELECT state, raw_tx FROM payments_topup',
    );
    assert.equal(row!.state, 'sent', 'it is watched');
    await one.client.sendRawTransaction({ serializedTransaction: row!.raw_tx });
    await paidAtLast(fixture, header);
    assert.equal(await fixture.balance(wallet), usdToNano(5));
  });

  test('the report of a lying node stays pending while the honest node is down', async () => {
    const fixture = await openBase(second.url, first.url);
    const { header, wallet } = await payment(fixture);
    const before = await one.balance(payTo);
    const fail = async (): Promise<never> => await Promise.reject(new Error('gone'));
    first.alter = fail;
    await assert.rejects(fixture.payments.headers.topUp(header), { status: 503 });
    assert.deepEqual([...(await fixture.store.query('SELECT 1 FROM payments_topup'))], []);
    first.alter = async (_call, ask) => await ask();
    second.alter = async ({ method }, ask) => {
      if (method === 'eth_sendRawTransaction') first.alter = fail;
      return await ask();
    };
    await assert.rejects(fixture.payments.headers.topUp(header), isPending);
    await fixture.store.query('UPDATE payments_topup SET next_check_ms = 0, lease_until_ms = 0');
    await fixture.payments.sweep();
    assert.equal(await fixture.balance(wallet), 0n);
    assert.equal(await one.balance(payTo), before);
    assert.equal(fixture.payments.contradictions.get(BASE), 0);
    first.alter = async (_call, ask) => await ask();
    const [row] = await fixture.store.query<{ raw_tx: Hex }>('SELECT raw_tx FROM payments_topup');
    await one.client.sendRawTransaction({ serializedTransaction: row!.raw_tx });
    await fixture.store.query('UPDATE payments_topup SET next_check_ms = 0, lease_until_ms = 0');
    await fixture.payments.sweep();
    assert.equal(await fixture.balance(wallet), usdToNano(5));
  });

  test('a node that lags does not contradict two that agree', async () => {
    const fixture = await openBase(first.url, second.url, third.url);
    const { header, wallet } = await payment(fixture);
    laterMs = 90_000;
    const timestamp = BigInt(Math.floor(clock.nowMs() / 1000));
    await one.client.setNextBlockTimestamp({ timestamp });
    await fixture.payments.headers.topUp(header);
    assert.equal(await fixture.balance(wallet), usdToNano(5));
    assert.equal(fixture.payments.contradictions.get(BASE), 0);
  });

  test('a node that reports a block of the future hides no payment that others have sent', async () => {
    const fixture = await openBase(first.url, third.url, fourth.url);
    const { header, wallet } = await payment(fixture);
    let isSent = false;
    first.alter = async ({ method, params }, ask) => {
      if (method === 'eth_estimateGas' && !isSent) {
        isSent = true;
        await one.callToken('transferWithAuthorization', transferArgs(header));
      }
      const reply = (await ask()) as { result: { readonly number: Hex } };
      if (method !== 'eth_getBlockByNumber' || params[0] !== 'latest') return reply;
      const number = numberToHex(BigInt(reply.result.number) + 1_000_000n);
      return { result: { ...reply.result, number } };
    };
    await paidAtLast(fixture, header);
    assert.equal(await fixture.balance(wallet), usdToNano(5));
  });

  test('a node that counts transactions of the future delays no payment', async () => {
    const fixture = await openBase(first.url, third.url, fourth.url);
    const { header, wallet } = await payment(fixture);
    first.alter = async ({ method }, ask) => {
      const reply = (await ask()) as { result: Hex };
      if (method !== 'eth_getTransactionCount') return reply;
      return { result: numberToHex(BigInt(reply.result) + 1_000n) };
    };
    await fixture.payments.headers.topUp(header);
    assert.equal(await fixture.balance(wallet), usdToNano(5));
  });

  test('a node that accepts transactions and keeps them to itself delays no payment', async () => {
    const fixture = await openBase(first.url, third.url, fourth.url);
    const { header, wallet } = await payment(fixture);
    first.alter = async ({ method, params }, ask) =>
      method === 'eth_sendRawTransaction' ? { result: keccak256(params[0] as Hex) } : await ask();
    await fixture.payments.headers.topUp(header);
    assert.equal(await fixture.balance(wallet), usdToNano(5));
  });

  test('a node that has stopped delays no payment while two others go on', async () => {
    const fixture = await openBase(first.url, third.url, fourth.url);
    const [earlier, later] = [await payment(fixture), await payment(fixture)];
    await fixture.payments.headers.topUp(earlier.header);
    // As after a restart: the nonce in the database is not trusted.
    await fixture.store.query('UPDATE payments_gas_nonce SET next_nonce = 0');
    const { timestamp } = await one.client.getBlock();
    first.alter = async ({ method, params }, ask) => {
      if (method === 'eth_getTransactionCount') return { result: '0x0' };
      if (method === 'eth_sendRawTransaction') return { result: keccak256(params[0] as Hex) };
      const reply = (await ask()) as { result: object };
      if (method !== 'eth_getBlockByNumber') return reply;
      return { result: { ...reply.result, timestamp: numberToHex(timestamp - 600n) } };
    };
    const [health] = await fixture.payments.railMonitor.check();
    assert.match(health?.problems.join() ?? '', /Node 1 of 3 is more than a minute behind/);
    assert.equal(health?.isReady, true);
    await fixture.payments.headers.topUp(later.header);
    assert.equal(await fixture.balance(later.wallet), usdToNano(5));
  });

  test('a transaction that waits at one node alone keeps its nonce', async () => {
    const settings = await baseOf([first.url, third.url, fourth.url]);
    const fixture = await open(settings);
    const [waiting, later] = [await payment(fixture), await payment(fixture)];
    for (const node of [third, fourth]) {
      node.alter = async ({ method }, ask) => {
        if (method !== 'eth_getTransactionCount') return await ask();
        return { result: '0x0' };
      };
    }
    await one.client.setAutomine(false);
    await assert.rejects(fixture.payments.headers.topUp(waiting.header), isPending);
    // As after a restart: the nonce in the database is not trusted.
    await fixture.store.query('UPDATE payments_gas_nonce SET next_nonce = 0');
    await assert.rejects(fixture.payments.headers.topUp(later.header), isPending);
    await one.client.setAutomine(true);
    await one.client.mine({ blocks: 1 });
    for (const { header, wallet } of [waiting, later]) {
      await paidAtLast(fixture, header);
      assert.equal(await fixture.balance(wallet), usdToNano(5));
    }
  });

  test('the exposed facilitator reports no payment that only one node reports', async () => {
    const fixture = await openBase(second.url, first.url);
    const { header } = await payment(fixture);
    const paymentPayload = JSON.parse(Buffer.from(header, 'base64').toString()) as {
      accepted: object;
    };
    const body = { paymentPayload, paymentRequirements: paymentPayload.accepted };
    const settled = (await fixture.payments.facilitator!.call('settle', body)) as {
      success: boolean;
    };
    assert.equal(settled.success, false);
    assert.ok((fixture.payments.contradictions.get(BASE) ?? 0) >= 1);
    const agreeing = await openBase(first.url, third.url);
    const other = await payment(agreeing);
    const payload = JSON.parse(
      Buffer.from(other.header, 'base64').toString(),
    ) as typeof paymentPayload;
    const answer = await agreeing.payments.facilitator!.call('settle', {
      paymentPayload: payload,
      paymentRequirements: payload.accepted,
    });
    assert.equal((answer as { success: boolean }).success, true, JSON.stringify(answer));
  });

  test('a contract signature that only one node accepts is refused', async () => {
    const owner = privateKeyToAccount(generatePrivateKey());
    const address = privateKeyToAccount(generatePrivateKey()).address;
    await other.placeWallet(address, owner.address);
    const hash = `0x${'5a'.repeat(32)}` as const;
    const signature = await owner.sign({ hash });
    const fixture = await openBase(first.url);
    const { evm } = await openRails({
      settings: { ...TEST_SETTINGS, ...(await baseOf([second.url, first.url])) },
      store: fixture.store,
      clock,
      log: silentLog,
      pollMs: 100,
    });
    const question = { address, hash, signature, clientAddress: 'x' };
    await assert.rejects(evm[0]!.isContractSignature(question), /contradict/);
    first.alter = async () => await Promise.reject(new Error('gone'));
    await assert.rejects(evm[0]!.isContractSignature(question), /two must agree/);
    first.alter = async (_call, ask) => await ask();
    await one.placeWallet(address, owner.address);
    assert.equal(await evm[0]!.isContractSignature(question), true);
  });

  const refusals: [string, AlteredNode['alter']][] = [
    ['breaks off', async () => await Promise.reject(new Error('gone'))],
    ['is limited', async () => await Promise.resolve(rpcError(-32_005, 'limit exceeded'))],
    ['has no such method', async () => await Promise.resolve(rpcError(-32_601, 'not found'))],
  ];
  for (const [what, alter] of refusals) {
    test(`the next node is asked when the first ${what}, and the first is left alone then`, async () => {
      const fixture = await openBase(first.url, third.url, fourth.url);
      const { header, wallet } = await payment(fixture);
      first.alter = alter;
      for (const node of [first, third]) node.seen.length = 0;
      await fixture.payments.headers.topUp(header);
      assert.equal(await fixture.balance(wallet), usdToNano(5));
      const looks = third.seen.filter(({ method }) => method === 'eth_getTransactionReceipt');
      assert.ok(first.seen.length <= looks.length + 2, `asked ${first.seen.length} times`);
    });
  }

  test('a rejection by the chain is a result: no other node is called', async () => {
    const fixture = await openBase(first.url, second.url);
    const { header } = await payment(fixture);
    first.alter = async ({ method }, ask) =>
      method === 'eth_estimateGas'
        ? { error: { code: 3, message: 'execution reverted', data: '0x' } }
        : await ask();
    second.seen.length = 0;
    await assert.rejects(fixture.payments.headers.topUp(header));
    assert.ok(second.seen.every(({ method }) => method !== 'eth_estimateGas'));
  });

  test('one node of another chain makes the rail not ready, and is named by its place', async () => {
    const fixture = await openBase(first.url, second.url);
    second.alter = async ({ method }, ask) =>
      method === 'eth_chainId' ? { result: '0x1' } : await ask();
    const [health] = await fixture.payments.railMonitor.check();
    assert.equal(health?.isReady, false);
    assert.match(health?.problems.join() ?? '', /Node 2 of 2 serves chain 1, not eip155:8453/);
    second.alter = async () => await Promise.reject(new Error('gone'));
    const [away] = await fixture.payments.railMonitor.check();
    assert.equal(away?.isReady, true);
    assert.match(away?.problems.join() ?? '', /Node 2 of 2 does not respond/);
  });
});

describe('nodes of Solana', () => {
  let one: SolanaChain;
  let other: SolanaChain;
  let second: AlteredNode;
  /** Another node of the first chain. */
  let third: AlteredNode;
  const feePayerKey = systemIds().hex(32);

  before(async () => {
    one = await startSolana();
    other = await startSolana();
    second = await startAlteredNode(other.rpcUrl);
    third = await startAlteredNode(one.rpcUrl);
  });
  after(async () => {
    await second.stop();
    await third.stop();
    await one.stop();
    await other.stop();
  });

  async function paid(
    ...rpcUrl: string[]
  ): Promise<{ fixture: Fixture; header: string; wallet: string }> {
    const receiver = await generateKeyPairSigner();
    const payer = await generateKeyPairSigner();
    const feePayer = await createKeyPairSignerFromPrivateKeyBytes(Buffer.from(feePayerKey, 'hex'));
    for (const chain of [one, other]) {
      chain.airdrop(feePayer.address, 10_000_000_000n);
      await chain.setTokens(receiver.address, 0n);
      await chain.setTokens(payer.address, 100_000_000n);
    }
    const fixture = await open({
      solana: solanaRail({
        payTo: receiver.address,
        rpcUrl,
        feePayerKey,
      }),
    });
    const scheme = new ExactSvmScheme(payer, { rpcUrl: one.rpcUrl });
    const client = new x402Client().register(SOLANA, scheme);
    return { fixture, header: await headerOf(fixture, client, SOLANA), wallet: payer.address };
  }

  test('a payment that only one node reports is credited once a second reports it', async () => {
    second.alter = takingNothing;
    const { fixture, header, wallet } = await paid(one.rpcUrl, second.url);
    await assert.rejects(fixture.payments.headers.topUp(header), isPending);
    assert.equal(await fixture.balance(wallet), 0n);
    assert.ok((fixture.payments.contradictions.get(SOLANA) ?? 0) >= 1);
    second.alter = async () => await Promise.reject(new Error('gone'));
    await assert.rejects(fixture.payments.headers.topUp(header), isPending);
    assert.equal(await fixture.balance(wallet), 0n);
  });

  test('a node that lags does not contradict two that agree', async () => {
    second.alter = async ({ method }, ask) =>
      method === 'getBlockTime' ? { result: Math.floor(Date.now() / 1000) - 600 } : await ask();
    const { fixture, header, wallet } = await paid(one.rpcUrl, second.url, third.url);
    await fixture.payments.headers.topUp(header);
    assert.equal(await fixture.balance(wallet), usdToNano(5));
  });

  test('the next node is called if the first one fails', async () => {
    const { fixture, header, wallet } = await paid('http://127.0.0.1:9/', one.rpcUrl, third.url);
    await fixture.payments.headers.topUp(header);
    assert.equal(await fixture.balance(wallet), usdToNano(5));
    second.alter = async () => await Promise.resolve(rpcError(-32_005, 'Node is behind'));
    const behind = await paid(second.url, one.rpcUrl, third.url);
    await behind.fixture.payments.headers.topUp(behind.header);
    assert.equal(await behind.fixture.balance(behind.wallet), usdToNano(5));
  });
});
