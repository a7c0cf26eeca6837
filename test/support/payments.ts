/**
 * For tests: payments on a SQLite file with a ledger of one table. `payment-server.ts` is a server
 * around them.
 */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { systemClock } from '../../src/core/clock.ts';
import type { Clock } from '../../src/core/clock.ts';
import { Fault } from '../../src/core/faults.ts';
import { systemIds } from '../../src/core/ids.ts';
import { memoryLog } from './memory-log.ts';
import type { LogLine } from './memory-log.ts';
import { nano } from '../../src/core/money.ts';
import type { Nano } from '../../src/core/money.ts';
import { openStore } from '../../src/db/db.ts';
import type { Queryable, Store } from '../../src/db/db.ts';
import { BASE, SOLANA } from '../../src/payments/networks.ts';
import { openPayments, PAYMENTS_MIGRATIONS } from '../../src/payments/payments.ts';
import type {
  CreditEntry,
  Payments,
  PaymentsOptions,
  PaymentSettings,
} from '../../src/payments/payments.ts';

type BaseSettings = NonNullable<PaymentSettings['base']>;
type SolanaSettings = NonNullable<PaymentSettings['solana']>;

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

/** Settings of the rail of Base; those of `rail` take precedence. */
export function baseRail(
  rail: Partial<BaseSettings> & Pick<BaseSettings, 'payTo' | 'rpcUrl'>,
): BaseSettings {
  return { network: BASE, maxGas: 300_000, maxFeeGwei: 50, warnBelowEth: 0, ...rail };
}

/** Settings of the rail of Solana; those of `rail` take precedence. */
export function solanaRail(
  rail: Partial<SolanaSettings> & Pick<SolanaSettings, 'payTo' | 'rpcUrl'>,
): SolanaSettings {
  const limits = { maxPriorityFeeMicroLamports: 100_000, maxComputeUnits: 200_000 };
  return { network: SOLANA, ...limits, warnBelowSol: 0, ...rail };
}

/** Maximum attempts for a pending payment; each waits for a second. */
const MAX_REPEATS = 60;

export interface FixtureOptions {
  readonly settings: Partial<PaymentSettings>;
  readonly publicUrl?: string;
  /** Folder of another fixture, whose SQLite database is shared. */
  readonly folder?: string;
  /** URL of another database than SQLite in the folder. */
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
    pollMs: 100,
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

/** The signed authorization, and the index of its posting. */
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

/** Sends the same header again while the response is pending, as the response requires. */
export async function repeatPending<T>(pay: () => Promise<T>): Promise<T> {
  for (let left = MAX_REPEATS; ; left -= 1) {
    try {
      return await pay();
    } catch (error) {
      const isPending = error instanceof Fault && [202, 503].includes(error.status);
      if (!isPending || left === 0) throw error;
    }
  }
}

export async function paidAtLast({ payments }: Fixture, header: string) {
  return await repeatPending(() => payments.headers.topUp(header));
}
