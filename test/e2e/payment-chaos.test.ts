/**
 * Payments of both schemes under random faults: lost broadcasts, front-runners, cancellations,
 * foreign transfers, kill -9 at every step, and reorganisations that revert payments, their funding
 * and repeated transactions. At the end the audit finds no difference, the books match the chain,
 * and `audit --chain` reports exactly the planted faults. The seed is printed and determines
 * everything.
 */
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { type TestContext, test } from 'node:test';
import { encodeFunctionData, parseAbi, parseAbiItem, parseSignature } from 'viem';
import type { Hex } from 'viem';
import { type PrivateKeyAccount, generatePrivateKey, privateKeyToAccount } from 'viem/accounts';
import { runCommand } from '../../src/cli/cli.ts';
import { walletAccountId } from '../../src/identity/identity.ts';
import { type Nano, nano, usdToNano } from '../../src/core/money.ts';
import { PERMIT2_ADDRESS as PERMIT2 } from '@x402/evm';
import { NO_TOKENS, type SettleRequest } from '../../src/billing/ledger/ledger.ts';
import { type AnvilChain, USDC, startAnvil } from '../chains/anvil.ts';
import { type FaultProxy, startFaultProxy } from '../chains/fault-proxy.ts';
import { type Books, openBooks, take } from './payment-books.ts';
import { PAY_TO, evmPayment, uptoPayment } from './wallet-fixture.ts';
import { endWithUs } from '../support/end-with-us.ts';
import { cancelAuthorization } from '../support/payers.ts';

const PAYMENTS = 20;
const STEPS = ['opened', 'journaled', 'settled', 'credited'] as const;
const WATCH_STEPS = ['vanished', 'resent', 'reversed'] as const;
const CANCEL = parseAbi(['function invalidateUnorderedNonces(uint256 word, uint256 mask)']);
const TRANSFER = parseAbiItem(
  'event Transfer(address indexed from, address indexed to, uint256 value)',
);

/** Mulberry32: small, seeded, and good enough to order faults. */
function randomOf(seed: number): () => number {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
}

/** A signed payment, and what a request wants of it: all of it where a fixed amount was signed. */
interface Payment {
  readonly payer: Hex;
  readonly header: string;
  readonly wanted: Nano;
}

interface Chaos {
  readonly random: () => number;
  readonly folder: string;
  readonly anvil: AnvilChain;
  readonly proxy: FaultProxy;
  readonly gas: Hex;
  readonly payments: Payment[];
  readonly counts: Map<string, number>;
  books: Books;
}

const FAULTS = [
  'none',
  'none',
  'none',
  'lost request',
  'lost reply',
  'deaf node',
  'front-run',
  'used before',
  'cancelled',
  'stranger',
  'killed',
  'spends',
] as const;

export async function chaos(t: TestContext, seed: number, payments: number): Promise<void> {
  const random = randomOf(seed);
  const folder = mkdtempSync(join(tmpdir(), 'farebox-chaos-'));
  const anvil = await startAnvil();
  const proxy = await startFaultProxy(anvil.rpcUrl);
  const gasKey = generatePrivateKey();
  const gas = privateKeyToAccount(gasKey).address;
  await anvil.fund(gas, 10n ** 18n);
  await anvil.deployPermit2();
  writeFileSync(
    join(folder, 'farebox.yaml'),
    `embedded: { enabled: false }
discovery: { enabled: false }
payments:
  settleWaitSeconds: 1
  base: { payTo: '${PAY_TO}', rpcUrl: ${proxy.url}, gasKey: '${gasKey}', upto: true, maxFeeGwei: 50, warnBelowEth: 0 }
`,
  );
  const books = await openBooks(folder);
  const all: Chaos = { random, folder, anvil, proxy, books, gas, payments: [], counts: new Map() };
  try {
    for (let index = 0; index < payments; index += 1) await oneRound(all, index);
    await calm(all);
    await compare(t, all);
  } finally {
    await all.books.close();
    await proxy.stop();
    await anvil.stop();
    rmSync(folder, { recursive: true, force: true });
  }
}

function count(all: Chaos, what: string): void {
  all.counts.set(what, (all.counts.get(what) ?? 0) + 1);
}

async function oneRound(all: Chaos, index: number): Promise<void> {
  const { random, anvil, proxy } = all;
  const drawn = FAULTS[Math.floor(random() * FAULTS.length)];
  // The audit starts at the first payment, so it cannot report earlier transfers.
  const fault = index === 0 ? 'none' : (drawn ?? 'none');
  count(all, fault);
  const key = generatePrivateKey();
  const account = privateKeyToAccount(key);
  await anvil.mint(account.address, 20_000_000n);
  const payment = await paymentOf(all, account);
  all.payments.push(payment);
  const isLost = fault === 'lost request' || fault === 'front-run' || fault === 'cancelled';
  if (isLost) lose(proxy, 'lose-request');
  if (fault === 'lost reply') lose(proxy, 'lose-reply');
  if (fault === 'deaf node') {
    let isSent = false;
    proxy.fate = (method) => {
      isSent ||= method === 'eth_sendRawTransaction';
      return isSent && method !== 'eth_sendRawTransaction' ? 'lose-request' : 'pass';
    };
  }
  if (fault === 'used before') await useElsewhere(all, payment);
  if (fault === 'stranger') await anvil.callToken('mint', [PAY_TO, BigInt(1_000_000 + index)]);
  if (fault === 'killed') await child(all, pick(all, STEPS), payment);
  else await take(all.books, payment).catch(() => undefined); // compared at the end
  if (fault === 'front-run') await useElsewhere(all, payment);
  proxy.fate = () => 'pass';
  if (fault === 'cancelled') await cancel(all, key, payment);
  if (fault === 'spends') await spend(all, account.address.toLowerCase(), index);
  if (random() < 0.25) await reorganise(all);
  if (random() < 0.3) await look(all, random() < 0.3 ? 1 : 0);
  if (random() < 0.1) {
    await rewind(all, 1);
    await child(all, pick(all, WATCH_STEPS));
  }
}

function lose(proxy: FaultProxy, fate: 'lose-request' | 'lose-reply'): void {
  proxy.fate = (method) => (method === 'eth_sendRawTransaction' ? fate : 'pass');
}

function pick<T>(all: Chaos, from: readonly T[]): T {
  const found = from[Math.floor(all.random() * from.length)];
  assert.ok(found !== undefined);
  return found;
}

/** Creates a payment of one of the schemes. */
async function paymentOf(all: Chaos, account: PrivateKeyAccount): Promise<Payment> {
  const payer = account.address;
  if (all.random() < 0.5) {
    return { payer, header: await evmPayment(account), wanted: usdToNano(5) };
  }
  count(all, 'upto');
  await all.anvil.approvePermit2(payer, 20_000_000n);
  const wanted = nano(usdToNano(1) + BigInt(Math.floor(all.random() * 4e9)));
  return { payer, header: await uptoPayment(account, all.gas), wanted };
}

/** Another wallet sends the signed authorization, or the payer cancels it if no other wallet can. */
async function useElsewhere({ anvil }: Chaos, { payer, header }: Payment): Promise<void> {
  const { payload } = JSON.parse(Buffer.from(header, 'base64').toString()) as {
    payload: {
      authorization?: Record<string, string>;
      permit2Authorization?: { nonce: string };
      signature: Hex;
    };
  };
  const { authorization: one, permit2Authorization: permit } = payload;
  if (one === undefined) {
    const nonce = BigInt(permit?.nonce ?? 0);
    const args = [nonce >> 8n, 1n << (nonce & 0xffn)] as const;
    const data = encodeFunctionData({ abi: CANCEL, args });
    return await anvil.callAs(payer, PERMIT2, data);
  }
  const { r, s, yParity } = parseSignature(payload.signature);
  const numbers = ['value', 'validAfter', 'validBefore'].map((name) => BigInt(one[name] ?? 0));
  const args = [one['from'], one['to'], ...numbers, one['nonce'], 27 + yParity, r, s];
  // It fails where the payment has been made already.
  await anvil.callToken('transferWithAuthorization', args).catch(() => undefined);
}

/**
 * The payer cancels a transaction that is not mined, so that it fails; then a reorganisation
 * usually drops the cancellation, and the transaction is mined.
 */
async function cancel(all: Chaos, key: Hex, payment: Payment): Promise<void> {
  const { anvil, books } = all;
  const isCeiling = Buffer.from(payment.header, 'base64').includes('permit2Authorization');
  if (isCeiling) await useElsewhere(all, payment);
  else await cancelAuthorization(anvil, key, payment.header);
  await take(books, payment).catch(() => undefined); // compared at the end
  if (all.random() < 0.3) return;
  const [row] = await books.stores.store.query<{ raw_tx: Hex | null }>(
    'SELECT raw_tx FROM payments_topup WHERE wallet = $1',
    [payment.payer.toLowerCase()],
  );
  const raw = row?.raw_tx ?? undefined;
  count(all, 'cancellation dropped');
  // If earlier nonces of the gas key are missing, the transaction cannot be mined yet.
  await anvil.reorg(1, raw === undefined ? [] : [[raw, 0]]).catch(() => anvil.reorg(1));
}

async function child(all: Chaos, dieAt: string, payment?: Payment): Promise<void> {
  const file = new URL('payment-books-process.ts', import.meta.url).pathname;
  const more = payment === undefined ? [] : [payment.header, String(payment.wanted)];
  const started = endWithUs(
    spawn(process.execPath, [file, all.folder, dieAt, ...more], {
      stdio: ['ignore', 'ignore', 'inherit'],
    }),
  );
  const [code, signal] = await new Promise<[number | null, NodeJS.Signals | null]>((resolve) => {
    started.once('exit', (ended, how) => resolve([ended, how]));
  });
  if (signal === 'SIGKILL') count(all, `kill -9 at ${dieAt}`);
  else assert.equal(code, 0, 'a process that was not killed ends well');
}

async function spend({ books }: Chaos, wallet: string, index: number): Promise<void> {
  const { ledger } = books.stores;
  const costNano = usdToNano('1.75');
  const accountId = walletAccountId(wallet);
  const requestId = `spent-${index}`;
  const bounds = { requestId, accountId, minNano: costNano, maxNano: costNano };
  const placed = await ledger.holds.place({ ...bounds, floorNano: usdToNano(0) });
  if (!placed.ok) return;
  const request: SettleRequest = {
    costNano,
    usage: {
      requestId,
      createdMs: Date.now(),
      accountId,
      keyId: '',
      kind: 'chat',
      modelId: 'm',
      attempts: 1,
      tokens: NO_TOKENS,
      countedBy: 'engine',
      priceVersion: 'v1',
      latencyMs: 1,
      status: 'completed',
    },
  };
  await ledger.holds.settle(request, placed.hold);
}

async function reorganise(all: Chaos): Promise<void> {
  const height = Number(await all.anvil.client.getBlockNumber());
  const depth = Math.min(1 + Math.floor(all.random() * 6), height - 1);
  // The first block stays.
  if (depth < 1) return;
  count(all, 'reorganisation');
  all.counts.set('blocks lost', (all.counts.get('blocks lost') ?? 0) + depth);
  await all.anvil.reorg(depth);
}

async function rewind({ books }: Chaos, hours: number): Promise<void> {
  await books.stores.store.query(
    `UPDATE payments_topup SET next_check_ms = 0, lease_until_ms = 0,
       vanished_ms = vanished_ms - $1`,
    [hours * 3_600_000],
  );
}

async function look(all: Chaos, hours: number): Promise<void> {
  await rewind(all, hours);
  await all.books.payments.sweep();
}

/** No more faults: payers send their headers again, time passes, everything becomes final. */
async function calm(all: Chaos): Promise<void> {
  const { books, anvil, payments } = all;
  for (let round = 0; round < 3; round += 1) await look(all, 0);
  for (const payment of payments) {
    if (all.random() < 0.5) await take(books, payment).catch(() => undefined);
  }
  await anvil.client.increaseTime({ seconds: 2_000 });
  for (let round = 0; round < 40; round += 1) {
    await anvil.client.mine({ blocks: 20 });
    await look(all, 1);
    await books.stores.ledger.collectDebts();
    const [open] = await books.stores.store.query<{ n: bigint }>(
      `SELECT count(*) AS n FROM payments_topup WHERE state IN ('open', 'sent') OR is_watched = 1`,
    );
    if (open?.n === 0n) return;
  }
  assert.fail('some payments found no end');
}

interface Audit {
  readonly ok: boolean;
  readonly chain: {
    readonly payments: number;
    readonly underWay: number;
    readonly differences: readonly { readonly what: string; readonly paymentId?: string }[];
    readonly unknown: readonly { readonly transaction: string }[];
  };
}

async function audit(all: Chaos): Promise<Audit & { readonly code: number }> {
  let out = '';
  const code = await runCommand({
    argv: ['audit', '--chain', '--json'],
    env: { FAREBOX_DATA: join(all.folder, 'data') },
    cwd: all.folder,
    stdout: { write: (text) => void (out += text) },
    stderr: { write: (text) => void (out += text) },
    onSignal: () => undefined,
  });
  return { code, ...(JSON.parse(out) as Audit) };
}

async function compare(t: TestContext, all: Chaos): Promise<void> {
  const { store, ledger } = all.books.stores;
  const rows = await store.query<{
    payment_key: string;
    payment_id: string;
    wallet: string;
    state: string;
    tx_id: string | null;
    amount_units: bigint;
    reversals: bigint;
  }>('SELECT * FROM payments_topup');
  const logs = await all.anvil.client.getLogs({
    address: USDC,
    event: TRANSFER,
    args: { to: PAY_TO },
    fromBlock: 0n,
  });
  const credited = rows.filter(({ state }) => state === 'credited');
  const creditedIn = new Set(credited.map((row) => row.tx_id));
  // One by one: each credit is one transfer of its wallet, and none is credited twice.
  for (const row of credited) {
    const own = logs.filter((log) => log.transactionHash === row.tx_id);
    assert.equal(own.length, 1, `${row.payment_id} in ${row.tx_id}`);
    assert.equal(own[0]?.args.from?.toLowerCase(), row.wallet);
    assert.equal(own[0]?.args.value, row.amount_units);
  }
  assert.equal(creditedIn.size, credited.length);
  const units = credited.reduce((sum, row) => sum + row.amount_units, 0n);
  assert.equal(await ledger.receivedFrom('house:top-up:base'), units * 1_000n);
  const ledgerAudit = await ledger.audit();
  assert.deepEqual(ledgerAudit.differences, []);
  const foreign = logs.filter((log) => !creditedIn.has(log.transactionHash));
  const first = await audit(all);
  assert.equal(first.code, 0, JSON.stringify(first.chain.differences));
  assert.deepEqual(
    new Set(first.chain.unknown.map(({ transaction }) => transaction)),
    new Set(foreign.map(({ transactionHash }) => transactionHash)),
  );
  const reversals = rows.reduce((sum, row) => sum + Number(row.reversals), 0);
  t.diagnostic(
    JSON.stringify({
      ...Object.fromEntries(all.counts),
      rows: rows.length,
      credited: credited.length,
      reversals,
      foreignTransfers: foreign.length,
      debtUsd: Number(ledgerAudit.debtNano) / 1e9,
    }),
  );
  await plant(all, credited);
}

/** Plants differences behind the back of everything, and expects exactly these. */
async function plant(
  all: Chaos,
  credited: readonly { readonly payment_key: string; readonly payment_id: string }[],
): Promise<void> {
  const { store } = all.books.stores;
  const [hidden, invented] = credited;
  assert.ok(hidden !== undefined && invented !== undefined);
  await store.query(`UPDATE payments_topup SET state = 'failed' WHERE payment_key = $1`, [
    hidden.payment_key,
  ]);
  // The signed amount, or for a ceiling the transferred amount.
  const other = invented.payment_key.includes('/permit2:')
    ? 'amount_units = amount_units - 1'
    : `payload = replace(payload, '"value":"5000000"', '"value":"6000000"')`;
  await store.query(`UPDATE payments_topup SET ${other} WHERE payment_key = $1`, [
    invented.payment_key,
  ]);
  const { code, chain } = await audit(all);
  assert.equal(code, 1);
  assert.deepEqual(
    new Set(chain.differences.map(({ what, paymentId }) => `${what}: ${paymentId}`)),
    new Set([
      `credited, but not on the chain: ${invented.payment_id}`,
      `on the chain, but not credited: ${hidden.payment_id}`,
      'the credits in the ledger differ from its payments (negative: the ledger has less): undefined',
    ]),
  );
}

test('after random faults the books match the chain', async (t) => {
  const seed = Math.floor(Math.random() * 2 ** 31);
  t.diagnostic(`seed ${seed}, ${PAYMENTS} payments`);
  await chaos(t, seed, PAYMENTS);
});
