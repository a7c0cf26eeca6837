/**
 * For tests: payments on a SQLite file with a ledger of one table, and a small HTTP server with the
 * three kinds of routes that wallets meet (top-up, balance, a paid endpoint).
 */
import { mkdtempSync, rmSync } from 'node:fs';
import { createServer } from 'node:http';
import type { IncomingMessage, ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { systemClock } from '../../src/core/clock.ts';
import type { Clock } from '../../src/core/clock.ts';
import { Fault } from '../../src/core/faults.ts';
import { systemIds } from '../../src/core/ids.ts';
import { memoryLog } from './memory-log.ts';
import type { LogLine } from './memory-log.ts';
import { formatUsd, nano } from '../../src/core/money.ts';
import type { Nano } from '../../src/core/money.ts';
import { openStore } from '../../src/db/db.ts';
import type { Queryable, Store } from '../../src/db/db.ts';
import { openPayments, PAYMENTS_MIGRATIONS } from '../../src/payments/payments.ts';
import { balanceBody, topUpBody } from '../../src/wallet/x402/x402.ts';
import type {
  CreditEntry,
  Payments,
  PaymentsOptions,
  PaymentSettings,
} from '../../src/payments/payments.ts';

export const TEST_SETTINGS: PaymentSettings = {
  minimumTopUpUsd: 5,
  suggestedTopUpUsd: 10,
  maximumTopUpUsd: 10_000,
  firstPaymentUsd: 1,
  firstPaymentVersionOneUsd: 0.1,
  minimumBalanceUsd: 0.1,
  maxTimeoutSeconds: 300,
  settleWaitSeconds: 1,
  sessionMinutes: 60,
  receipts: true,
  mpp: false,
  requiredHeaderBytes: 3_600,
  facilitator: { timeoutSeconds: 10, expose: true },
};

/** Of a payment that is pending; each waits for a second. */
const MAX_REPEATS = 60;

export interface FixtureOptions {
  readonly settings: Partial<PaymentSettings>;
  readonly publicUrl?: string;
  /** The folder of another fixture, to share its SQLite database. */
  readonly folder?: string;
  /** Another database than a SQLite file in the folder. */
  readonly databaseUrl?: string;
  readonly clock?: Clock;
  readonly onStep?: PaymentsOptions['onStep'];
  readonly leaseMs?: number;
}

export interface Fixture {
  readonly payments: Payments;
  readonly store: Store;
  readonly folder: string;
  readonly log: readonly LogLine[];
  /** Sum of the postings of a wallet, in nano-USD. */
  balance(wallet: string): Promise<Nano>;
  /** Number of postings of all wallets. */
  postings(): Promise<number>;
  post(wallet: string, key: string, amount: bigint): Promise<void>;
  close(): Promise<void>;
}

const LEDGER = {
  id: 'testledger-0001',
  up: `CREATE TABLE testledger_entry (entry_key TEXT PRIMARY KEY, wallet TEXT NOT NULL, amount BIGINT NOT NULL);`,
};

export async function openFixture(options: FixtureOptions): Promise<Fixture> {
  const folder = options.folder ?? mkdtempSync(join(tmpdir(), 'farebox-payments-'));
  const clock = options.clock ?? systemClock();
  const log: LogLine[] = [];
  const parts = { clock, ids: systemIds(), log: memoryLog(log) };
  const store = await openStore({
    url: options.databaseUrl ?? `sqlite:${join(folder, 'test.db')}`,
    ...parts,
  });
  await store.migrate([...PAYMENTS_MIGRATIONS, LEDGER]);
  const payments = await openPayments({
    store,
    ...parts,
    settings: { ...TEST_SETTINGS, ...options.settings },
    publicUrl: options.publicUrl ?? 'http://pay.test',
    serviceName: 'svc',
    tokenPrefix: 'svc_wallet_',
    docsUrl: 'http://pay.test/docs',
    keysUrl: 'http://pay.test/keys',
    credit: async (tx, entry) => await post(tx, entry.wallet, entryKey(entry), entry.amountNano),
    reverse: async (tx, entry) => {
      const balance = await sum(tx, entry.wallet);
      const taken = balance < entry.amountNano ? balance : entry.amountNano;
      await post(tx, entry.wallet, entryKey(entry), 0n - taken);
      return nano(entry.amountNano - taken);
    },
    debitRefund: async (tx, entry) => {
      const balance = await post(tx, entry.wallet, entry.refundId, 0n - entry.amountNano);
      if (balance < 0n) throw new Fault('INSUFFICIENT_BALANCE');
      return balance;
    },
    restoreRefund: async (tx, entry) =>
      await post(tx, entry.wallet, `${entry.refundId}-back`, entry.amountNano),
    tokenCaps: { set: async () => undefined, drop: async () => undefined },
    pollMs: 25,
    leaseMs: options.leaseMs ?? 1_000,
    ...(options.onStep === undefined ? {} : { onStep: options.onStep }),
  }).catch(async (error: unknown) => {
    await store.close();
    throw error;
  });
  return {
    payments,
    store,
    folder,
    log,
    balance: async (wallet) => await sum(store, wallet),
    postings: async () => {
      const rows = await store.query<{ n: bigint }>('SELECT COUNT(*) AS n FROM testledger_entry');
      return Number(rows[0]?.n);
    },
    post: async (wallet, key, amount) => {
      await store.transaction(async (tx) => await post(tx, wallet, key, amount));
    },
    close: async () => {
      await payments.stop();
      await store.close();
      if (options.folder === undefined) rmSync(folder, { recursive: true, force: true });
    },
  };
}

/** The signed authorization, and which posting of it. */
function entryKey({ paymentKey, paymentId, postingId }: CreditEntry): string {
  return paymentKey + postingId.slice(paymentId.length);
}

async function post(tx: Queryable, wallet: string, key: string, amount: bigint): Promise<Nano> {
  await tx.query('INSERT INTO testledger_entry (entry_key, wallet, amount) VALUES ($1, $2, $3)', [
    key,
    wallet,
    amount,
  ]);
  return await sum(tx, wallet);
}

async function sum(from: Queryable, wallet: string): Promise<Nano> {
  const rows = await from.query<{ total: bigint | null }>(
    'SELECT CAST(SUM(amount) AS BIGINT) AS total FROM testledger_entry WHERE wallet = $1',
    [wallet],
  );
  return nano(rows[0]?.total ?? 0n);
}

export interface PaymentServer {
  readonly url: string;
  /** To be set once the payments that know this address are open. */
  fixture: Fixture | undefined;
  stop(): Promise<void>;
}

const PRICE = 10_000_000n;

/** The server first, so that its address can be the public origin of the payments. */
export async function startPaymentServer(): Promise<PaymentServer> {
  const state: { fixture: Fixture | undefined; calls: number } = { fixture: undefined, calls: 0 };
  const server = createServer((request, response) => {
    const fixture = state.fixture;
    if (fixture === undefined) return void response.writeHead(503).end();
    state.calls += 1;
    const call = { fixture, request, response, number: state.calls };
    route(call).catch((error: unknown) => sendFault(response, error));
  });
  await new Promise<void>((resolve) => {
    server.listen(0, '127.0.0.1', resolve);
  });
  const { port } = server.address() as AddressInfo; // listening on TCP
  return {
    url: `http://127.0.0.1:${port}`,
    get fixture() {
      return state.fixture;
    },
    set fixture(fixture) {
      state.fixture = fixture;
    },
    stop: async () => {
      server.closeAllConnections();
      await new Promise<void>((resolve) => {
        server.close(() => resolve());
      });
    },
  };
}

interface Call {
  readonly fixture: Fixture;
  readonly request: IncomingMessage;
  readonly response: ServerResponse;
  readonly number: number;
}

async function route(call: Call): Promise<void> {
  const { request } = call;
  request.resume();
  const path = new URL(request.url ?? '/', 'http://x').pathname;
  if (path === '/api/v1/x402/top-up') return await topUp(call);
  if (path.startsWith('/api/v1/x402/balance/')) return await balance(call, path.slice(21));
  if (path === '/api/v1/chat/completions') return await chat(call);
  call.response.writeHead(404).end();
}

function headerOf(request: IncomingMessage, ...names: string[]): string | undefined {
  const found = names.map((name) => request.headers[name]).find((value) => value !== undefined);
  return typeof found === 'string' ? found : undefined;
}

const paymentHeader = (request: IncomingMessage): string | undefined =>
  headerOf(request, 'payment-signature', 'x-402-payment', 'x-payment');
const signInHeader = (request: IncomingMessage): string | undefined =>
  headerOf(request, 'sign-in-with-x', 'x-sign-in-with-x');

async function topUp({ fixture, request, response }: Call): Promise<void> {
  const header = paymentHeader(request);
  const resource = { path: '/api/v1/x402/top-up', description: 'Wallet credit' };
  if (header === undefined) {
    if (request.url?.includes('x402Version=1') === true) {
      return send(response, 402, fixture.payments.requirements.versionOne(resource, 'topUp'), {});
    }
    const answer = await fixture.payments.requirements.topUp(resource);
    return send(response, 402, answer.body, { 'PAYMENT-REQUIRED': answer.header });
  }
  const receipt = await fixture.payments.topUp(header);
  send(response, 200, topUpBody(receipt), { 'PAYMENT-RESPONSE': receipt.responseHeader });
}

async function balance({ fixture, request, response }: Call, wallet: string): Promise<void> {
  const header = signInHeader(request);
  if (header === undefined) return discovery(fixture, response, `/api/v1/x402/balance/${wallet}`);
  const signed = await fixture.payments.signIn(header, '');
  if (signed.wallet !== wallet.toLowerCase() && signed.wallet !== wallet) {
    throw new Fault('X402_WALLET_MISMATCH');
  }
  const credit = await fixture.balance(signed.wallet);
  send(response, 200, balanceBody(signed.wallet, credit, fixture.payments.amounts), {});
}

async function chat({ fixture, request, response, number }: Call): Promise<void> {
  const path = '/api/v1/chat/completions';
  const payment = paymentHeader(request);
  const proof = signInHeader(request);
  const headers: Record<string, string> = {};
  let wallet: string;
  if (payment !== undefined) {
    const receipt = await fixture.payments.topUp(payment);
    headers['PAYMENT-RESPONSE'] = receipt.responseHeader;
    wallet = receipt.wallet;
  } else if (proof !== undefined) {
    wallet = (await fixture.payments.signIn(proof, '')).wallet;
  } else return discovery(fixture, response, path);
  const credit = await fixture.balance(wallet);
  if (credit < fixture.payments.amounts.minimumBalance) {
    const needed = fixture.payments.amounts.minimumBalance;
    const answer = await fixture.payments.requirements.insufficientCredit(
      { path, description: 'Chat' },
      { balance: credit, needed },
    );
    return send(response, 402, answer.body, { 'PAYMENT-REQUIRED': answer.header });
  }
  await fixture.post(wallet, `charge-${number}`, -PRICE);
  headers['X-Balance-Remaining'] = formatUsd(credit - PRICE, 6);
  send(response, 200, { choices: [{ message: { role: 'assistant', content: 'Hi' } }] }, headers);
}

async function discovery(fixture: Fixture, response: ServerResponse, path: string): Promise<void> {
  const answer = await fixture.payments.requirements.discovery({
    path,
    description: 'A paid endpoint',
  });
  send(response, 402, answer.body, { 'PAYMENT-REQUIRED': answer.header });
}

function sendFault(response: ServerResponse, error: unknown): void {
  if (!(error instanceof Fault)) return send(response, 500, { error: String(error) }, {});
  const { body, headers, retryAfterSeconds } = error.options;
  send(response, error.status, body ?? { error: error.message, code: error.code }, {
    ...headers,
    ...(retryAfterSeconds === undefined ? {} : { 'Retry-After': String(retryAfterSeconds) }),
  });
}

function send(
  response: ServerResponse,
  status: number,
  body: unknown,
  headers: Readonly<Record<string, string>>,
): void {
  response.writeHead(status, { 'content-type': 'application/json', ...headers });
  response.end(JSON.stringify(body));
}

/** A chain may take longer than an answer waits: the same header again, as the answer says. */
export async function paidAtLast({ payments }: Fixture, header: string) {
  for (let left = MAX_REPEATS; ; left -= 1) {
    try {
      return await payments.topUp(header);
    } catch (error) {
      const isPending = error instanceof Fault && error.code === 'SETTLEMENT_PENDING';
      if (!isPending || left === 0) throw error;
    }
  }
}
