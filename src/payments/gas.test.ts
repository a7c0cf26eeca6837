/** Gas in the books: what the chain took from the gas keys, to the smallest unit. */
import assert from 'node:assert/strict';
import { after, afterEach, before, describe, test } from 'node:test';
import { createKeyPairSignerFromPrivateKeyBytes, generateKeyPairSigner } from '@solana/kit';
import type { Address } from '@solana/kit';
import { generatePrivateKey, privateKeyToAccount } from 'viem/accounts';
import { numberToHex, type Hex } from 'viem';
import { startAlteredNode } from '../../test/chains/altered-node.ts';
import type { AlteredNode } from '../../test/chains/altered-node.ts';
import { startAnvil } from '../../test/chains/anvil.ts';
import type { AnvilChain } from '../../test/chains/anvil.ts';
import { startFaultProxy } from '../../test/chains/fault-proxy.ts';
import { startSolana } from '../../test/chains/solana.ts';
import { onEachStore } from '../../test/databases/stores.ts';
import { evmPayment, solanaPayment } from '../../test/support/payers.ts';
import { baseRail, openFixture, paidAtLast, solanaRail } from '../../test/support/payments.ts';
import type { Fixture } from '../../test/support/payments.ts';
import { TestClock } from '../../test/support/test-clock.ts';
import { DAY_MS, dayOf, systemClock } from '../core/clock.ts';
import { Fault } from '../core/faults.ts';
import { systemIds } from '../core/ids.ts';
import { usdToNano } from '../core/money.ts';
import { LEDGER_MIGRATIONS } from '../billing/ledger/ledger.ts';
import { beancountFile, booksCsv } from '../server/ops/books-format.ts';
import { readWholeBooks } from '../server/ops/books-read.ts';
import { readGas, recordGas, storeSent } from './gas.ts';
import type { GasState } from './rail.ts';
import { PAYMENTS_MIGRATIONS } from './payments.ts';
import { SOLANA } from './networks.ts';

const ETHER = 10n ** 18n;
const payTo: Hex = '0x00000000000000000000000000000000000fa12b';

async function checkNow({ store, payments }: Fixture): Promise<void> {
  await store.query('UPDATE payments_gas SET next_check_ms = 0');
  await store.query('UPDATE payments_topup SET next_check_ms = 0, lease_until_ms = 0');
  await payments.sweep();
}

/** All gas that is recorded: the sum of its payments, which must be that of the database. */
async function recorded({ store }: Fixture) {
  const { payments, totals } = await readGas(store, 0, 100_000, 1_000);
  const sum = payments.reduce((total, { amount }) => total + amount, 0n);
  assert.equal(sum, totals[0]?.amount ?? 0n);
  return { sum, count: payments.length, coin: totals[0]?.coin };
}

describe('gas on Base', () => {
  let chain: AnvilChain;
  let node: AlteredNode;
  let fixture: Fixture;
  let laterMs = 0;
  let spentBefore = 0n;
  const clock = { ...systemClock(), nowMs: () => Date.now() + laterMs };
  const gasKey = generatePrivateKey();
  const { address } = privateKeyToAccount(gasKey);
  const refundKey = generatePrivateKey();

  before(async () => {
    chain = await startAnvil();
    node = await startAlteredNode(chain.rpcUrl);
    await chain.fund(address, ETHER);
    const base = baseRail({ payTo, rpcUrl: node.url, gasKey, refundKey });
    fixture = await openFixture({ settings: { base }, clock });
  });
  after(async () => {
    await fixture.close();
    await node.stop();
    await chain.stop();
  });
  afterEach(async () => {
    node.alter = async (_call, ask) => await ask();
    await chain.client.setAutomine(true);
    await chain.client.mine({ blocks: 70 });
    await checkNow(fixture);
    const spent = ETHER - (await chain.client.getBalance({ address }));
    assert.ok(spent > spentBefore, 'the test has sent a transaction');
    spentBefore = spent;
    const { sum, coin } = await recorded(fixture);
    assert.equal(sum, spent, 'recorded gas against the balance of the gas key');
    assert.equal(coin, 'ETH');
  });

  const isPending = (error: unknown): boolean =>
    error instanceof Fault && error.code === 'SETTLEMENT_PENDING';

  test('a top-up and a refund are recorded once their blocks are final, and once only', async () => {
    const { count } = await recorded(fixture);
    const { header, wallet } = await evmPayment(chain, fixture);
    await fixture.payments.headers.topUp(header);
    await chain.client.mine({ blocks: 70 });
    await checkNow(fixture);
    await chain.mint(privateKeyToAccount(refundKey).address, 50_000_000n);
    const refund = await fixture.payments.refunds.refund(wallet, usdToNano('1.5'));
    assert.equal(refund.state, 'paid');
    await checkNow(fixture);
    assert.equal((await recorded(fixture)).count, count + 1, 'the refund is not final');
    await chain.client.mine({ blocks: 70 });
    await Promise.all([checkNow(fixture), checkNow(fixture)]);
    assert.equal((await recorded(fixture)).count, count + 2);
  });

  test('a transaction that failed on the chain is recorded', async () => {
    const { count } = await recorded(fixture);
    const { header, wallet } = await evmPayment(chain, fixture);
    await chain.client.setAutomine(false);
    await assert.rejects(fixture.payments.headers.topUp(header), isPending);
    await chain.setTokens(wallet as Hex, 0n);
    await chain.client.mine({ blocks: 71 });
    await checkNow(fixture);
    assert.equal((await recorded(fixture)).count, count + 1);
    assert.equal(await fixture.balance(wallet), 0n);
  });

  test('after a reorganisation, the gas of the final block is recorded', async () => {
    const { count } = await recorded(fixture);
    await chain.client.mine({ blocks: 3 });
    const { header } = await evmPayment(chain, fixture);
    await fixture.payments.headers.topUp(header);
    await checkNow(fixture);
    await chain.reorg(1);
    await checkNow(fixture);
    assert.equal((await recorded(fixture)).count, count);
    await chain.client.mine({ blocks: 71 });
    await checkNow(fixture);
    assert.equal((await recorded(fixture)).count, count + 1);
  });

  test('of a transaction and its replacement with a higher fee, the mined one is recorded', async () => {
    const { count } = await recorded(fixture);
    const mineAt = async (gwei: bigint): Promise<void> => {
      await chain.client.setNextBlockBaseFeePerGas({ baseFeePerGas: gwei * 10n ** 9n });
      await chain.client.mine({ blocks: 1 });
    };
    await mineAt(1n);
    const { header } = await evmPayment(chain, fixture);
    await chain.client.setAutomine(false);
    await assert.rejects(fixture.payments.headers.topUp(header), isPending);
    await mineAt(20n);
    laterMs += 31_000;
    await fixture.payments.replaceStuck();
    await mineAt(20n);
    await paidAtLast(fixture, header);
    await mineAt(0n);
    await chain.client.mine({ blocks: 70 });
    await checkNow(fixture);
    assert.equal((await recorded(fixture)).count, count + 1);
    const open = 'SELECT tx_id FROM payments_gas WHERE amount IS NULL';
    assert.equal((await fixture.store.query(open)).length, 1, 'the attempt that was not mined');
    laterMs += 2 * DAY_MS;
    await chain.client.increaseTime({ seconds: (2 * DAY_MS) / 1_000 });
    await chain.client.mine({ blocks: 70 });
    await checkNow(fixture);
    assert.equal((await fixture.store.query(open)).length, 0, 'it can never be mined');
  });
});

test('the fee of a chain of the OP stack for its data is part of the gas', async () => {
  const chain = await startAnvil();
  const node = await startAlteredNode(chain.rpcUrl);
  const gasKey = generatePrivateKey();
  const { address } = privateKeyToAccount(gasKey);
  await chain.fund(address, ETHER);
  const base = baseRail({ payTo, rpcUrl: node.url, gasKey });
  const fixture = await openFixture({ settings: { base } });
  try {
    const l1Fee = 123_456_789_012_345n;
    node.alter = async (call, ask) => {
      const response = (await ask()) as { result: object | null };
      if (call.method !== 'eth_getTransactionReceipt' || response.result === null) return response;
      return { ...response, result: { ...response.result, l1Fee: numberToHex(l1Fee) } };
    };
    await fixture.payments.headers.topUp((await evmPayment(chain, fixture)).header);
    await chain.client.mine({ blocks: 70 });
    await checkNow(fixture);
    const spent = ETHER - (await chain.client.getBalance({ address }));
    assert.equal((await recorded(fixture)).sum, spent + l1Fee);
  } finally {
    await fixture.close();
    await node.stop();
    await chain.stop();
  }
});

test('gas on Solana is what the fee payer has lost, also by a transaction that failed', async () => {
  const chain = await startSolana();
  const proxy = await startFaultProxy(chain.rpcUrl);
  const [feePayerKey, refundKey] = [systemIds().hex(32), systemIds().hex(32)];
  const keyOf = (key: string) => createKeyPairSignerFromPrivateKeyBytes(Buffer.from(key, 'hex'));
  const [feePayer, treasury] = [await keyOf(feePayerKey), await keyOf(refundKey)];
  const receiver = await generateKeyPairSigner();
  chain.airdrop(feePayer.address, 10_000_000_000n);
  await chain.setTokens(receiver.address, 0n);
  await chain.setTokens(treasury.address, 50_000_000n);
  const rail = { payTo: receiver.address, rpcUrl: proxy.url, feePayerKey, refundKey };
  const fixture = await openFixture({ settings: { solana: solanaRail(rail) } });
  const balance = async (): Promise<bigint> => {
    const health = await fixture.payments.railMonitor.check();
    return health[0]?.gasBalance ?? 0n;
  };
  try {
    const start = await balance();
    const assertRecorded = async (count: number): Promise<void> => {
      await checkNow(fixture);
      assert.deepEqual(await recorded(fixture), {
        sum: start - (await balance()),
        count,
        coin: 'SOL',
      });
    };
    const paid = await solanaPayment(chain, fixture);
    chain.unfinal = true;
    await fixture.payments.headers.topUp(paid.header);
    await checkNow(fixture);
    assert.equal((await recorded(fixture)).count, 0, 'the slot is not final');
    chain.unfinal = false;
    await assertRecorded(1);
    const refund = await fixture.payments.refunds.refund(paid.wallet, usdToNano(2));
    assert.equal(refund.state, 'paid');
    await assertRecorded(2);
    const emptied = await solanaPayment(chain, fixture);
    proxy.fate = async (method) => {
      if (method === 'sendTransaction') await chain.setTokens(emptied.wallet as Address, 0n);
      return 'pass' as const;
    };
    await assert.rejects(fixture.payments.headers.topUp(emptied.header));
    await assertRecorded(3);
  } finally {
    await fixture.close();
    await proxy.stop();
    await chain.stop();
  }
});

onEachStore('recorded gas', (fixture) => {
  test('gas of a transaction from before a clock correction is recorded', async () => {
    const store = await fixture.open(PAYMENTS_MIGRATIONS);
    const clock = new TestClock();
    const day = dayOf(clock.nowMs());
    const transaction = { transaction: '0xa', network: 'eip155:8453', payer: '0xkey', number: 0n };
    await storeSent(store, { ...transaction, sentMs: clock.nowMs() + 30 * DAY_MS });
    const gasReader = async () => async () => ({ amount: 5n, paidMs: clock.nowMs() });
    const rails = new Map([['eip155:8453', { gasReader }]]);
    await recordGas({ store, clock, rails }, 'eip155:8453');
    const { payments } = await readGas(store, day, day, 10);
    assert.deepEqual(
      payments.map(({ amount }) => amount),
      [5n],
    );
  });

  test('the books have each payment in its coin, and the sums of the database equal the journal', async () => {
    const store = await fixture.open([...LEDGER_MIGRATIONS, ...PAYMENTS_MIGRATIONS]);
    const clock = new TestClock();
    const firstDay = dayOf(clock.nowMs());
    const states = new Map<string, GasState>();
    const sent = async (network: string, transaction: string, state: GasState): Promise<void> => {
      states.set(transaction, state);
      const payer = '0xkey';
      await storeSent(store, { transaction, network, payer, number: 0n, sentMs: clock.nowMs() });
    };
    const record = async (): Promise<void> => {
      for (const network of ['eip155:8453', 'eip155:137', SOLANA]) {
        const gasReader = async () => async (row: { readonly transaction: string }) =>
          states.get(row.transaction) ?? 'waiting';
        await recordGas({ store, clock, rails: new Map([[network, { gasReader }]]) }, network);
      }
    };
    const [wei, huge] = [1_234_567n, 9_999n * ETHER + 1n];
    const early = { paidMs: clock.nowMs() - 2 * DAY_MS };
    const late = { paidMs: clock.nowMs() };
    await sent('eip155:8453', '0xa', { amount: wei, ...early });
    await sent('eip155:8453', '0xb', { amount: 7n, ...late });
    await sent('eip155:137', '0xc', { amount: huge, ...late });
    await sent('eip155:137', '0xd', { amount: huge, ...late });
    await sent('eip155:137', '0xe', 'waiting');
    await sent('eip155:137', '0xf', 'dead');
    await sent(SOLANA, 'g', { amount: 5_000n, ...late });
    await record();
    const none = await readGas(store, 0, firstDay, 10);
    assert.deepEqual(none, { payments: [], totals: [] }, 'nothing is read in the first seconds');
    clock.advance(20_000);
    await record();
    const gas = await readGas(store, firstDay, firstDay, 10);
    const base = { network: 'base', coin: 'ETH', decimals: 18, before: wei, amount: 7n };
    const polygon = { network: 'eip155:137', coin: 'POL', decimals: 18, before: 0n };
    const sol = { network: 'solana', coin: 'SOL', decimals: 9, before: 0n, amount: 5_000n };
    assert.deepEqual(gas.totals, [
      { ...base, transactions: 1 },
      { ...polygon, transactions: 2, amount: 2n * huge },
      { ...sol, transactions: 1 },
    ]);
    states.set('0xa', { amount: 1n, ...late });
    states.set('0xe', { amount: 2n, ...late });
    clock.advance(2 * DAY_MS);
    await record();
    const later = await readGas(store, firstDay, firstDay, 10);
    assert.deepEqual(
      later.payments.map(({ transaction, amount }) => [transaction, amount]),
      [
        ['0xb', 7n],
        ['0xc', huge],
        ['0xd', huge],
        ['0xe', 2n],
        ['g', 5_000n],
      ],
    );
    const left = 'SELECT tx_id FROM payments_gas WHERE amount IS NULL';
    assert.deepEqual(await store.query(left), [], 'the transaction without a block is removed');

    const books = await readWholeBooks(store, firstDay, firstDay);
    const csv = booksCsv(books).trim().split('\r\n');
    assert.match(csv[0] ?? '', /,usd,postings,account_id,note,coin_amount,coin$/);
    assert.match(
      csv[2] ?? '',
      /^\d{4}-\d\d-\d\d,0xc,GAS,house:gas:eip155:137,house:gas-key:eip155:137,,1,,0xkey,9999\.000000000000000001,POL$/,
    );
    const file = beancountFile(books);
    for (const line of [
      /open Expenses:Gas:Base ETH$/m,
      /open Assets:Gas-Key:Eip155:137 POL$/m,
      /open Equity:Opening-Balances USD,ETH,POL,SOL$/m,
      /balance Assets:Gas-Key:Base -0\.000000000001234574 ETH$/m,
      /balance Assets:Gas-Key:Solana -0\.000005000 SOL$/m,
      /balance Liabilities:Customers 0\.000000000 USD\n$/,
    ]) {
      assert.match(file, line);
    }
  });
});
