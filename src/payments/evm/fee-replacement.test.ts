/** Transactions that wait for a lower price, on a private Base: raised, mined once, credited once. */
import assert from 'node:assert/strict';
import { after, afterEach, before, describe, test } from 'node:test';
import { parseTransaction, toFunctionSelector } from 'viem';
import type { Hex } from 'viem';
import { generatePrivateKey, privateKeyToAccount } from 'viem/accounts';
import { rpcError, startAlteredNode } from '../../../test/chains/altered-node.ts';
import type { AlteredNode } from '../../../test/chains/altered-node.ts';
import { startAnvil, USDC } from '../../../test/chains/anvil.ts';
import type { AnvilChain } from '../../../test/chains/anvil.ts';
import { HOUR_MS, MINUTE_MS, systemClock } from '../../core/clock.ts';
import { Fault } from '../../core/faults.ts';
import { usdToNano } from '../../core/money.ts';
import { BASE } from '../networks.ts';
import { isStuck, listTopUps } from '../top-up-list.ts';
import { transferArgs, transferHeader } from '../../../test/support/payers.ts';
import { baseRail, openFixture } from '../../../test/support/payments.ts';
import { until } from '../../../test/support/until.ts';
import type { Fixture } from '../../../test/support/payments.ts';

const payTo: Hex = '0x00000000000000000000000000000000000fa12b';
const GWEI = 1_000_000_000n;
const CAP_GWEI = 50;

describe('a stuck transaction', () => {
  let chain: AnvilChain;
  let node: AlteredNode;
  const opened: Fixture[] = [];
  let laterMs = 0;
  const clock = { ...systemClock(), nowMs: () => Date.now() + laterMs };
  const gasKey = generatePrivateKey();
  const refundKey = generatePrivateKey();

  before(async () => {
    chain = await startAnvil();
    node = await startAlteredNode(chain.rpcUrl);
    await chain.fund(privateKeyToAccount(gasKey).address, 10n ** 18n);
  });
  afterEach(async () => {
    node.alter = async (_call, ask) => await ask();
    await chain.client.setAutomine(true);
    for (const fixture of opened.splice(0).toReversed()) await fixture.close();
  });
  after(async () => {
    await node.stop();
    await chain.stop();
  });

  const pendingGas = {
    address: privateKeyToAccount(gasKey).address,
    blockTag: 'pending',
  } as const;

  async function open(maxFeeGwei = CAP_GWEI, folder?: string): Promise<Fixture> {
    const base = baseRail({ payTo, rpcUrl: node.url, gasKey, refundKey, maxFeeGwei });
    const options = { settings: { base }, clock };
    const fixture = await openFixture(folder === undefined ? options : { ...options, folder });
    opened.push(fixture);
    return fixture;
  }

  async function payment(account = privateKeyToAccount(generatePrivateKey())) {
    await chain.mint(account.address, 100_000_000n);
    const { timestamp } = await chain.client.getBlock();
    const authorization = { validBefore: String(timestamp + 3_600n) };
    const header = await transferHeader(account, payTo, { authorization });
    return { header, account, wallet: account.address.toLowerCase() };
  }

  /** Sends a payment and raises the price above its fee; anvil then drops it, as full pools do. */
  async function stuck(fixture: Fixture): Promise<{ header: string; wallet: string; sent: Hex }> {
    await mineAt(1n);
    const paid = await payment();
    await chain.client.setAutomine(false);
    await assert.rejects(fixture.payments.headers.topUp(paid.header), isPending);
    await mineAt(20n);
    const [row] = await fixture.store.query<{ tx_id: Hex }>(
      'SELECT tx_id FROM payments_topup WHERE wallet = $1',
      [paid.wallet],
    );
    assert.ok(row !== undefined);
    assert.equal(await blockOf(row.tx_id), undefined, 'it waits');
    laterMs += 31_000;
    return { ...paid, sent: row.tx_id };
  }

  const isPending = (error: unknown): boolean =>
    error instanceof Fault && error.code === 'SETTLEMENT_PENDING';

  async function mineAt(baseFeeGwei: bigint): Promise<void> {
    await chain.client.setNextBlockBaseFeePerGas({ baseFeePerGas: baseFeeGwei * GWEI });
    await chain.client.mine({ blocks: 1 });
  }

  async function blockOf(hash: Hex): Promise<bigint | undefined> {
    const found = await chain.client.getTransactionReceipt({ hash }).catch(() => undefined); // not in one
    return found?.blockNumber;
  }

  async function waiting(fixture: Fixture): Promise<readonly { raw_tx: Hex; number: bigint }[]> {
    return await fixture.store.query(
      'SELECT raw_tx, number FROM payments_gas_transaction ORDER BY number DESC LIMIT 1',
    );
  }

  test('it gets a higher fee under the same gas nonce, and its payment is credited once', async () => {
    const fixture = await open();
    const { header, wallet, sent } = await stuck(fixture);
    const before = parseTransaction((await waiting(fixture))[0]!.raw_tx);
    await fixture.payments.replaceStuck();
    const after = parseTransaction((await waiting(fixture))[0]!.raw_tx);
    assert.deepEqual(
      { nonce: after.nonce, to: after.to, data: after.data, gas: after.gas },
      { nonce: before.nonce, to: before.to, data: before.data, gas: before.gas },
    );
    assert.ok(after.maxFeePerGas! > before.maxFeePerGas!);
    assert.ok(after.maxFeePerGas! <= BigInt(CAP_GWEI) * GWEI);
    await mineAt(20n);
    const receipt = await fixture.payments.headers.topUp(header);
    assert.notEqual(receipt.transaction, sent, 'the replacement was mined');
    await fixture.payments.headers.topUp(header);
    assert.equal(await fixture.balance(wallet), usdToNano(5));
    assert.equal(await fixture.postings(), 1);
  });

  test('it is credited by its first hash when its replacement was lost', async () => {
    const fixture = await open();
    const { header, wallet, sent } = await stuck(fixture);
    const [first] = await waiting(fixture);
    const tries: Hex[] = [];
    node.alter = async ({ method, params }, ask) => {
      if (method !== 'eth_sendRawTransaction') return await ask();
      const raw = params[0] as Hex;
      tries.push(raw);
      // It was on disk before it left.
      assert.equal((await waiting(fixture))[0]?.raw_tx, raw);
      throw new Error('lost');
    };
    await fixture.payments.replaceStuck();
    assert.ok(tries.length > 0);
    node.alter = async (_call, ask) => await ask();
    await mineAt(0n);
    await chain.client.sendRawTransaction({ serializedTransaction: first!.raw_tx });
    await mineAt(0n);
    const receipt = await fixture.payments.headers.topUp(header);
    assert.equal(receipt.transaction, sent);
    assert.equal(await fixture.balance(wallet), usdToNano(5));
    laterMs += 31_000;
    await fixture.payments.replaceStuck();
    assert.equal(await fixture.postings(), 1);
  });

  test('it gets a higher fee after the clock was set back', async () => {
    const fixture = await open();
    laterMs += HOUR_MS;
    const { header, wallet } = await stuck(fixture);
    laterMs -= HOUR_MS;
    await fixture.payments.replaceStuck();
    await mineAt(20n);
    await fixture.payments.headers.topUp(header);
    assert.equal(await fixture.balance(wallet), usdToNano(5));
  });

  test('only one of two processes raises its fee', async () => {
    const fixture = await open();
    const other = await open(CAP_GWEI, fixture.folder);
    await stuck(fixture);
    await Promise.all([fixture.payments.replaceStuck(), other.payments.replaceStuck()]);
    const raised = [...fixture.log, ...other.log].filter(({ message }) =>
      /fee was raised/.test(message),
    );
    assert.equal(raised.length, 1);
    await mineAt(20n);
  });

  test('the next transaction is mined with it', async () => {
    const fixture = await open();
    const second = await payment();
    const first = await stuck(fixture);
    await assert.rejects(fixture.payments.headers.topUp(second.header), isPending);
    await fixture.payments.replaceStuck();
    await mineAt(20n);
    await fixture.payments.headers.topUp(first.header);
    await fixture.payments.headers.topUp(second.header);
    assert.equal(await fixture.postings(), 2);
  });

  test('it stays at the highest fee, and the log says which setting to change', async () => {
    const fixture = await open(10);
    const { header } = await stuck(fixture);
    const [before] = await waiting(fixture);
    for (let round = 0; round < 20; round += 1) {
      await mineAt(9n);
      laterMs += 31_000;
      await fixture.payments.replaceStuck();
    }
    const [after] = await waiting(fixture);
    assert.ok(parseTransaction(after!.raw_tx).maxFeePerGas! <= 10n * GWEI);
    assert.equal(after!.number, before!.number);
    await mineAt(0n);
    await fixture.payments.headers.topUp(header);
    assert.equal(await fixture.postings(), 1);
  });

  const accepted = {
    scheme: 'exact',
    network: BASE,
    asset: USDC,
    amount: '5000000',
    payTo,
    maxTimeoutSeconds: 300,
    extra: { name: 'USD Coin', version: '2' },
  };

  interface Settled {
    readonly success: boolean;
    readonly transaction: Hex;
    readonly errorReason?: string;
  }

  async function settle(fixture: Fixture, header: string, required = accepted): Promise<Settled> {
    const paymentPayload = JSON.parse(Buffer.from(header, 'base64').toString()) as object;
    const body = {
      paymentPayload: { ...paymentPayload, accepted: required },
      paymentRequirements: required,
    };
    return (await fixture.payments.facilitator!.call('settle', body)) as Settled;
  }

  /** A payment whose transaction waits. */
  async function settling(fixture: Fixture) {
    await mineAt(1n);
    const { header, account } = await payment();
    await chain.client.setAutomine(false);
    const first = await settle(fixture, header);
    assert.equal(first.errorReason, 'settlement_pending');
    return { header, account, first };
  }

  test('the exposed facilitator reports its replacement', async () => {
    const fixture = await open();
    const { header, first } = await settling(fixture);
    await mineAt(20n);
    laterMs += 31_000;
    await fixture.payments.replaceStuck();
    await mineAt(20n);
    const second = await settle(fixture, header);
    assert.equal(second.success, true, JSON.stringify(second));
    assert.notEqual(second.transaction, first.transaction);
  });

  test('the exposed facilitator accepts it for the payment that it was sent for only', async () => {
    const fixture = await open();
    const { header, first } = await settling(fixture);
    const shop: Hex = '0x0000000000000000000000000000000000005409';
    await chain.client.mine({ blocks: 1 });
    for (const other of [{ payTo: shop }, { amount: '900000000' }, { asset: shop }]) {
      const settled = await settle(fixture, header, { ...accepted, ...other });
      assert.equal(settled.success, false, JSON.stringify(settled));
    }
    const settled = await settle(fixture, header);
    assert.deepEqual([settled.success, settled.transaction], [true, first.transaction]);
  });

  test('the exposed facilitator sends it again if another payment has used its gas nonce', async () => {
    const fixture = await open();
    const { header, account, first } = await settling(fixture);
    await chain.client.dropTransaction({ hash: first.transaction });
    await chain.client.setAutomine(true);
    laterMs += 61_000;
    const before = await chain.balance(payTo);
    const other = await settle(fixture, (await payment(account)).header);
    const settled = await settle(fixture, header);
    assert.deepEqual([other.success, settled.success], [true, true], JSON.stringify(settled));
    assert.notEqual(settled.transaction, other.transaction);
    assert.equal((await chain.balance(payTo)) - before, 10_000_000n);
  });

  test('its payment fails when its replacement was reverted, and can be sent again later', async () => {
    const fixture = await open();
    const { header, wallet } = await stuck(fixture);
    await fixture.payments.replaceStuck();
    await chain.setTokens(wallet as Hex, 0n);
    await mineAt(20n);
    const isReverted = (error: unknown): boolean =>
      error instanceof Fault && error.code === 'SETTLEMENT_FAILED';
    await assert.rejects(fixture.payments.headers.topUp(header), isReverted);
    assert.equal(await fixture.postings(), 0);
    await chain.setTokens(wallet as Hex, 5_000_000n);
    await chain.client.setAutomine(true);
    const again = await open(CAP_GWEI, fixture.folder);
    await again.payments.headers.topUp(header);
    assert.equal(await fixture.balance(wallet), usdToNano(5));
  });

  test('payments that exceed the balance of their wallet together are not sent together', async () => {
    const fixture = await open();
    await mineAt(1n);
    const { account, wallet, header } = await payment();
    await chain.setTokens(account.address, 5_000_000n);
    const headers = [header];
    for (let more = 0; more < 3; more += 1) headers.push((await payment(account)).header);
    await chain.setTokens(account.address, 5_000_000n);
    await chain.client.setAutomine(false);
    const balanceOf = toFunctionSelector('balanceOf(address)');
    let waits = 0;
    node.alter = async ({ method, params }, ask) => {
      if (method === 'eth_call' && String(Object(params[0]).data).startsWith(balanceOf)) waits += 1;
      if (method !== 'eth_estimateGas') return await ask();
      // As geth does; anvil adds the waiting transactions.
      const call = { method, params: [params[0], 'latest'] };
      return { result: await chain.client.request(call as never) }; // viem requires the type of the call
    };
    const before = await chain.client.getTransactionCount(pendingGas);
    const sent = async () => (await chain.client.getTransactionCount(pendingGas)) - before;
    const codes = headers.map((one) =>
      fixture.payments.headers.topUp(one).then(
        () => 'credited',
        (error: Fault) => error.code,
      ),
    );
    await until(async () => (await sent()) > 1 || waits >= 3, 'the other payments');
    await chain.client.mine({ blocks: 1 });
    await chain.client.setAutomine(true);
    const results = (await Promise.all(codes)).toSorted();
    assert.equal(results.filter((one) => one === 'credited').length, 1, String(results));
    assert.equal(await sent(), 1, String(results));
    assert.equal(await fixture.balance(wallet), usdToNano(5));
  });

  test('a payment whose payer made it revert does not need the operator', async () => {
    const fixture = await open();
    const { header, wallet } = await payment();
    node.alter = async ({ method }, ask) => {
      if (method === 'eth_sendRawTransaction') await chain.setTokens(wallet as Hex, 0n);
      return await ask();
    };
    await assert.rejects(
      fixture.payments.headers.topUp(header),
      (error: Fault) => error.code === 'SETTLEMENT_FAILED',
    );
    laterMs += 11 * MINUTE_MS;
    await fixture.payments.sweep();
    const warned = fixture.log.filter(({ message }) => /after a long time/.test(message));
    assert.deepEqual(warned, []);
    const stuck = await listTopUps(fixture.store, { stuckAtMs: clock.nowMs() }, { limit: 10 });
    const [listed] = await listTopUps(fixture.store, {}, { limit: 10 });
    assert.deepEqual(stuck, []);
    assert.deepEqual([listed?.state, isStuck(listed!, clock.nowMs())], ['sent', false]);
    let checks = 0;
    node.alter = async ({ method }, ask) => {
      if (method === 'eth_getTransactionReceipt') checks += 1;
      return await ask();
    };
    const hours = 6;
    for (let minutes = 0; minutes < hours * 60; minutes += 5) {
      laterMs += 5 * MINUTE_MS;
      await fixture.payments.sweep();
    }
    assert.ok(checks > hours && checks < 5 * hours, `${checks} checks`);
  });

  test('its payment is credited when a third party made it, so that its replacement was reverted', async () => {
    const fixture = await open();
    const { header, wallet } = await stuck(fixture);
    const lost = rpcError(-32_005, 'limit exceeded');
    node.alter = async ({ method }, ask) =>
      method === 'eth_sendRawTransaction' ? lost : await ask();
    await fixture.payments.replaceStuck();
    let isMade = false;
    node.alter = async ({ method, params }, ask) => {
      if (method !== 'eth_sendRawTransaction' || isMade) return await ask();
      isMade = true;
      await chain.client.setAutomine(true);
      await chain.callToken('transferWithAuthorization', transferArgs(header));
      await chain.client.sendRawTransaction({ serializedTransaction: params[0] as Hex });
      return await ask();
    };
    await fixture.payments.headers.topUp(header);
    assert.ok(isMade);
    assert.equal(await fixture.balance(wallet), usdToNano(5));
  });

  test('a refund whose fee was raised is not sent under a second gas nonce', async () => {
    const fixture = await open();
    const wallet = privateKeyToAccount(generatePrivateKey()).address;
    await chain.mint(privateKeyToAccount(refundKey).address, 100_000_000n);
    await fixture.post(wallet.toLowerCase(), 'credit', usdToNano(5));
    await mineAt(1n);
    await chain.client.setAutomine(false);
    const { refundId } = await fixture.payments.refunds.refund(wallet, usdToNano(5));
    await mineAt(20n);
    laterMs += 31_000;
    const [before] = await waiting(fixture);
    node.alter = async ({ method, params }, ask) => {
      if (method !== 'eth_estimateGas') return await ask();
      // As geth does; anvil adds the waiting transactions.
      const call = { method, params: [params[0], 'latest'] };
      return { result: await chain.client.request(call as never) }; // viem requires the type of the call
    };
    await fixture.payments.replaceStuck();
    await fixture.payments.sweep();
    const [after] = await waiting(fixture);
    assert.equal(after!.number, before!.number);
    assert.notEqual(after!.raw_tx, before!.raw_tx);
    await mineAt(20n);
    laterMs += 31_000;
    await fixture.payments.sweep();
    assert.equal((await fixture.payments.refunds.state(refundId)).state, 'paid');
    assert.equal(await chain.balance(wallet), 5_000_000n);
  });
});
