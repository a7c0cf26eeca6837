/**
 * Compares the database with the chains: every payment and every paid refund with its evidence, the
 * credits of a chain with the ledger, and the transfers to each receiver with the payments. Writes nothing.
 * A row whose evidence cannot be read counts as a difference.
 */
import type { Clock } from '../core/clock.ts';
import type { Log } from '../core/log.ts';
import { type Nano, nano } from '../core/money.ts';
import type { Queryable, Store } from '../db/db.ts';
import { chainReason } from './chain-log.ts';
import { type LedgerNetwork, ledgerNetwork, unitsToNano } from './networks.ts';
import { openRails } from './rails.ts';
import type { Rail } from './rail.ts';
import { type RefundRow, paidRefunds } from './refund-table.ts';
import type { RailOffer } from './requirements.ts';
import type { PaymentSettings } from './settings.ts';
import { attemptOf, paymentOf } from './top-up-records.ts';
import { countTopUps, creditedTotals, pageOfTopUps, topUpTransactions } from './top-up-table.ts';
import type { PageOfRows, TopUpRow } from './top-up-table.ts';

export interface ChainAuditOptions {
  readonly settings: PaymentSettings;
  readonly store: Store;
  readonly clock: Clock;
  readonly log: Log;
  readonly sinceMs: number;
  /** Sum of the ledger's credits in the account of a network, less reversals. */
  readonly receivedInLedger: (tx: Queryable, network: LedgerNetwork) => Promise<Nano>;
  readonly onProgress: (what: string, done: number, total: number) => void;
}

export interface ChainDifference {
  readonly what: string;
  readonly network: string;
  /** Id of a payment or a refund; `undefined` for the sums of a chain. */
  readonly paymentId: string | undefined;
  /** Key for `TopUps.recover`, if the payment has arrived and is not credited. */
  readonly recoverKey: string | undefined;
  readonly transaction: string | undefined;
  readonly amountNano: Nano;
}

/** A transfer to a receiver that belongs to no payment of this ledger. */
export interface UnknownTransfer {
  readonly network: string;
  readonly payTo: string;
  readonly transaction: string;
  readonly amountNano: Nano | undefined;
}

export type ChainAuditReport = Awaited<ReturnType<typeof auditChains>>;

const NOT_CREDITED = 'on the chain, but not credited';
const PAGE_ROWS = 200;
const PARALLEL = 8;

/** Rejects if a configured node does not respond. */
export async function auditChains(options: ChainAuditOptions) {
  const { rails } = await openRails({ ...options, pollMs: 0 });
  await Promise.all([...rails.values()].map((rail) => rail.newestHeight()));
  const audit = new ChainAudit(options, rails);
  await audit.compareTopUps();
  await audit.compareRefunds();
  await audit.compareSums();
  await audit.findUnknown();
  return audit.report();
}

interface Receiver {
  readonly rail: Rail;
  readonly offer: RailOffer;
  fromHeight: bigint;
}

class ChainAudit {
  readonly #options: ChainAuditOptions;
  readonly #rails: ReadonlyMap<string, Rail>;
  readonly #differences: ChainDifference[] = [];
  readonly #unknown: UnknownTransfer[] = [];
  readonly #receivers = new Map<string, Receiver>();
  /** `underWay`: unfinished payments. `notAsked`: payments and refunds without a configured rail. */
  readonly #counts = { payments: 0, refunds: 0, underWay: 0, notAsked: 0 };

  constructor(options: ChainAuditOptions, rails: ReadonlyMap<string, Rail>) {
    this.#options = options;
    this.#rails = rails;
  }

  report() {
    const differences = this.#differences;
    const unknown = this.#unknown;
    return { ok: differences.length === 0, ...this.#counts, differences, unknown };
  }

  async compareTopUps(): Promise<void> {
    const { store, sinceMs, onProgress } = this.#options;
    const counts = this.#counts;
    const total = await countTopUps(store, sinceMs);
    await this.#eachPage(
      pageOfTopUps,
      (row) => row.payment_key,
      async (row) => {
        const what = await this.#faultOf(row);
        if (what !== undefined) await this.#noteUnlessChanged(row, what);
        counts.payments += 1;
        onProgress('payments', counts.payments, total);
      },
    );
  }

  async #faultOf(row: TopUpRow): Promise<string | undefined> {
    const rail = this.#rails.get(row.network);
    if (rail === undefined) {
      this.#counts.notAsked += 1;
      return undefined;
    }
    try {
      const payment = paymentOf(rail, row);
      this.#noteReceiver(rail, payment.offer, row.start_height);
      if (row.state === 'open' || row.state === 'sent') {
        this.#counts.underWay += 1;
        return undefined;
      }
      const evidence = await rail.findPayment(payment, attemptOf(row), 'credit');
      const isPaid = evidence.kind === 'paid';
      if (row.state === 'credited' && !isPaid) return 'credited, but not on the chain';
      return row.state === 'failed' && isPaid ? NOT_CREDITED : undefined;
    } catch (error) {
      return `its state on the chain is unknown: ${chainReason(error)}`;
    }
  }

  async #noteUnlessChanged(row: TopUpRow, what: string): Promise<void> {
    const [now] = await this.#options.store.query<TopUpRow>(
      'SELECT * FROM payments_topup WHERE payment_key = $1',
      [row.payment_key],
    );
    if (now?.state !== row.state || now.reversals !== row.reversals) return;
    this.#note(what, row.payment_id, row, what === NOT_CREDITED ? row.payment_key : undefined);
  }

  #noteReceiver(rail: Rail, offer: RailOffer, fromHeight: bigint): void {
    const key = `${offer.network} ${offer.asset} ${offer.payTo}`;
    const known = this.#receivers.get(key);
    if (known === undefined) this.#receivers.set(key, { rail, offer, fromHeight });
    else if (fromHeight < known.fromHeight) known.fromHeight = fromHeight;
  }

  async compareRefunds(): Promise<void> {
    const counts = this.#counts;
    await this.#eachPage(
      paidRefunds,
      (row) => row.refund_id,
      async (row) => {
        const what = await this.#faultOfRefund(row);
        if (what !== undefined) this.#note(what, row.refund_id, row);
        counts.refunds += 1;
        this.#options.onProgress('refunds', counts.refunds, counts.refunds);
      },
    );
  }

  async #faultOfRefund(row: RefundRow): Promise<string | undefined> {
    const refunds = this.#rails.get(row.network)?.refunds;
    if (refunds === undefined) {
      this.#counts.notAsked += 1;
      return undefined;
    }
    try {
      const { kind } = await refunds.find(row.authorization_text, attemptOf(row));
      return kind === 'paid' ? undefined : 'a paid refund is not on the chain';
    } catch (error) {
      return `the state of a refund on the chain is unknown: ${chainReason(error)}`;
    }
  }

  #note(
    what: string,
    paymentId: string,
    row: Pick<RefundRow, 'network' | 'tx_id' | 'amount_units'>,
    recoverKey?: string,
  ): void {
    this.#differences.push({
      what,
      network: row.network,
      paymentId,
      recoverKey,
      transaction: row.tx_id ?? undefined,
      amountNano: unitsToNano(row.amount_units),
    });
  }

  async compareSums(): Promise<void> {
    const { store, receivedInLedger } = this.#options;
    const missing = new Map<LedgerNetwork, bigint>(
      [...(['base', 'solana'] as const), ...[...this.#rails.keys()].map(ledgerNetwork)].map(
        (name) => [name, 0n],
      ),
    );
    await store.transaction(async (tx) => {
      if (store.dialect === 'postgres') {
        await tx.query('SET TRANSACTION ISOLATION LEVEL REPEATABLE READ');
      }
      // Networks with an account of its own, and test networks in the account of the main one.
      for (const [network, credited] of await creditedTotals(tx)) {
        const name = ledgerNetwork(network);
        missing.set(name, (missing.get(name) ?? 0n) - credited);
      }
      for (const [name, credited] of missing) {
        missing.set(name, (await receivedInLedger(tx, name)) + credited);
      }
    });
    for (const [network, missingNano] of missing) {
      if (missingNano === 0n) continue;
      this.#differences.push({
        what: 'the credits in the ledger differ from its payments (negative: the ledger has less)',
        network,
        paymentId: undefined,
        recoverKey: undefined,
        transaction: undefined,
        amountNano: nano(missingNano),
      });
    }
  }

  async findUnknown(): Promise<void> {
    const { store, onProgress } = this.#options;
    for (const { rail, offer, fromHeight } of this.#receivers.values()) {
      const { network } = rail;
      const known = await topUpTransactions(store, network);
      const found = await rail.received({
        offer,
        fromHeight,
        isKnown: (transaction) => known.has(transaction),
        onProgress: (done, total) => onProgress(`transfers on ${network}`, done, total),
      });
      // A running server may have accepted more payments since `known` was read.
      const later = found.length === 0 ? known : await topUpTransactions(store, network);
      for (const { transaction, amountUnits } of found) {
        if (later.has(transaction)) continue;
        const amountNano = amountUnits === undefined ? undefined : unitsToNano(amountUnits);
        this.#unknown.push({ network, payTo: offer.payTo, transaction, amountNano });
      }
    }
  }

  async #eachPage<Row>(
    pageOf: (store: Store, page: PageOfRows) => Promise<readonly Row[]>,
    keyOf: (row: Row) => string,
    work: (row: Row) => Promise<void>,
  ): Promise<void> {
    const { store, sinceMs } = this.#options;
    for (let after: string | undefined = ''; after !== undefined;) {
      const rows = await pageOf(store, { sinceMs, after, limit: PAGE_ROWS });
      const queue = rows.values();
      const workers = Array.from({ length: PARALLEL }, async () => {
        for (const row of queue) await work(row);
      });
      await Promise.all(workers);
      const last = rows.at(-1);
      after = last === undefined ? undefined : keyOf(last);
    }
  }
}
