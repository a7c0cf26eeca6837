/**
 * Compares card payments with their provider in both directions, and with the ledger: every row with the
 * facts of its payment, every payment that arrived with its row, and the sums with the postings. Writes
 * nothing.
 */
import { reasonOf } from '../../core/log.ts';
import { type Nano, ZERO, larger, nano } from '../../core/money.ts';
import type { Queryable, Store } from '../../db/db.ts';
import type { CardPayment, ProviderName } from './card-rows.ts';
import { type CardSums, type CardTable, cardSums } from './card-table.ts';
import type { PaymentProvider } from './provider.ts';

export interface CardAuditOptions {
  readonly store: Store;
  readonly table: CardTable;
  readonly provider: PaymentProvider;
  readonly sinceMs: number;
  /** Sums in the ledger for a provider: credits minus reversals, paid refunds, and fees. */
  readonly postedFor: (tx: Queryable, provider: ProviderName) => Promise<CardSums>;
}

export interface CardDifference {
  readonly what: string;
  /** `undefined` for sums. */
  readonly paymentId: string | undefined;
  readonly intent: string | undefined;
  /** Amount at the provider, and in this database. */
  readonly providerNano: Nano;
  readonly hereNano: Nano;
}

export interface CardAuditReport {
  readonly ok: boolean;
  readonly payments: number;
  /** Payments whose money is not decided, or whose state changes now. */
  readonly pending: number;
  readonly differences: readonly CardDifference[];
}

const PAGE_ROWS = 200;

export async function auditCards(options: CardAuditOptions): Promise<CardAuditReport> {
  const { store, table, provider, sinceMs, postedFor } = options;
  const differences: CardDifference[] = [];
  const seen = new Set<string>();
  let pending = 0;
  for (let after: string | undefined = ''; after !== undefined;) {
    const rows: CardPayment[] = await table.page(sinceMs, after, PAGE_ROWS);
    for (const row of rows.filter((one) => one.provider === provider.name)) {
      seen.add(row.id);
      const difference = await differenceOf(options, row);
      if (difference === undefined) continue;
      // A running server may have changed the row since it was read.
      const now = await table.find(row.id);
      if (now?.version === row.version && row.dueMs === 0) differences.push(difference);
      else pending += 1;
    }
    after = rows.length < PAGE_ROWS ? undefined : rows.at(-1)?.id;
  }
  for await (const { paymentId, intent, paidNano } of provider.payments(sinceMs)) {
    if (seen.has(paymentId) || (await table.find(paymentId)) !== undefined) continue;
    const what = 'paid at the provider, but unknown here';
    differences.push({ what, paymentId, intent, providerNano: paidNano, hereNano: ZERO });
  }
  const sums = await store.transaction(
    async (tx) => ({
      rows: await cardSums(tx, provider.name),
      posted: await postedFor(tx, provider.name),
    }),
    { isSnapshot: true },
  );
  for (const [name, what] of [
    ['creditedNano', 'the credits in the ledger differ from the payments'],
    ['refundedNano', 'the refunds in the ledger differ from the refunds of the payments'],
    ['feeNano', 'the fees in the ledger differ from the fees of the payments'],
  ] as const) {
    const [providerNano, hereNano] = [sums.rows[name], sums.posted[name]];
    if (providerNano === hereNano) continue;
    differences.push({ what, paymentId: undefined, intent: undefined, providerNano, hereNano });
  }
  return { ok: differences.length === 0, payments: seen.size, pending, differences };
}

async function differenceOf(
  { table, provider }: CardAuditOptions,
  row: CardPayment,
): Promise<CardDifference | undefined> {
  const { id: paymentId, intent, creditedNano } = row;
  const found = { paymentId, intent, hereNano: creditedNano };
  try {
    const facts = await provider.facts(row, await table.refundsOf(row.id));
    const providerNano = larger(ZERO, nano(facts.paidNano - facts.returnedNano));
    const { feeNano = row.feeNano } = facts;
    if (providerNano === creditedNano && feeNano !== row.feeNano) {
      const what = 'the fee at the provider differs from the posted fee';
      return { ...found, what, providerNano: nano(feeNano), hereNano: nano(row.feeNano) };
    }
    if (providerNano === creditedNano) return undefined;
    const what =
      providerNano > creditedNano
        ? 'paid at the provider, but not credited'
        : 'credited, but not paid at the provider';
    return { ...found, what, providerNano };
  } catch (error) {
    const what = `its state at the provider is unknown: ${reasonOf(error)}`;
    return { ...found, what, providerNano: ZERO };
  }
}
