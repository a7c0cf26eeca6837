/**
 * The books: the postings of a range of days as a journal, and the sum owed to customers before and
 * after it. Accounts of customers are one account, `customers`; charges are one entry per day. Costs
 * of suppliers are no postings of the ledger: they are the sums of the receipts by day and engine.
 * Everything is read in one snapshot, so the sum of the journal is the change of what is owed.
 */
import type { Queryable, Store } from '../../db/db.ts';

export const CUSTOMERS = 'customers';

export interface JournalEntry {
  readonly day: number;
  /** Id of the posting; `charges-<day>` for the charges of a day. */
  readonly id: string;
  readonly kind: string;
  /** `customers` or a house account. */
  readonly debit: string;
  readonly credit: string;
  readonly amountNano: bigint;
  /** Number of postings in the entry. */
  readonly postings: number;
  /** Empty for the charges of a day. */
  readonly accountId: string;
  readonly note: string;
}

export interface Books {
  readonly fromDay: number;
  readonly toDay: number;
  readonly entries: readonly JournalEntry[];
  /** Sum of all balances at the end of the day before `fromDay`, and at the end of `toDay`. */
  readonly owedBeforeNano: bigint;
  readonly owedNano: bigint;
}

/** A journal is made in memory. */
const MAX_ENTRIES = 500_000;
const READ_TIMEOUT_MS = 600_000;

const SIDE = (column: string): string =>
  `CASE WHEN ${column} LIKE 'house:%' THEN ${column} ELSE '${CUSTOMERS}' END`;
const SIDES = `${SIDE('debit_account')} AS debit, ${SIDE('credit_account')} AS credit`;

interface EntryRow {
  readonly day: bigint;
  readonly id: string;
  readonly kind: string;
  readonly debit: string;
  readonly credit: string;
  readonly amount: bigint;
  readonly postings: bigint;
  readonly account_id: string;
  readonly note: string | null;
}

/** The first day from which all postings exist; 0 if retention has deleted none. */
export async function firstWholeDay(store: Queryable): Promise<number> {
  const [row] = await store.query<{ day: bigint }>(
    `SELECT day FROM ledger_kept_from WHERE rows_of = 'postings'
     AND EXISTS (SELECT 1 FROM ledger_carry WHERE transfers > 0)`,
  );
  return Number(row?.day ?? 0n);
}

/**
 * Throws an error with a message for the operator if the range has too many entries. Of days before
 * `firstWholeDay` the result lacks postings.
 */
export function readBooks(store: Store, fromDay: number, toDay: number): Promise<Books> {
  return store.transaction(
    async (tx) => {
      const charges = await tx.query<EntryRow>(
        `SELECT day, '' AS id, kind, debit, credit, CAST(sum(amount_nano) AS BIGINT) AS amount,
         count(*) AS postings, '' AS account_id, NULL AS note
         FROM (SELECT day, kind, amount_nano, ${SIDES} FROM ledger_transfer
           WHERE kind = 'CHARGE' AND day >= $1 AND day <= $2) charges
         GROUP BY day, kind, debit, credit`,
        [fromDay, toDay],
      );
      const others = await tx.query<EntryRow>(
        `SELECT day, id, kind, ${SIDES}, amount_nano AS amount, 1 AS postings, account_id, note
         FROM ledger_transfer WHERE kind <> 'CHARGE' AND day >= $1 AND day <= $2
         ORDER BY day, created_ms, id, part LIMIT $3`,
        [fromDay, toDay, MAX_ENTRIES + 1],
      );
      if (others.length > MAX_ENTRIES) {
        throw new Error(`The range has more than ${MAX_ENTRIES} entries; read fewer days at once`);
      }
      const costs = await tx.query<{
        day: bigint;
        engine: string;
        amount: bigint;
        requests: bigint;
      }>(
        `SELECT day, engine, CAST(sum(cost_nano) AS BIGINT) AS amount,
         CAST(sum(requests) AS BIGINT) AS requests FROM ledger_usage_day
         WHERE day >= $1 AND day <= $2 AND cost_nano > 0 GROUP BY day, engine`,
        [fromDay, toDay],
      );
      const supplied = costs.map(({ day, engine, amount, requests }): JournalEntry => {
        const debit = 'house:supplier-cost';
        const sum = { amountNano: amount, postings: Number(requests), accountId: '', note: '' };
        const credit = `house:supplier:${engine}`;
        const id = `supplier-${day}-${engine}`;
        return { ...sum, day: Number(day), id, kind: 'SUPPLIER_COST', debit, credit };
      });
      const posted = [...others, ...charges].map((row): JournalEntry => {
        const { day, kind, debit, credit, note } = row;
        const isSum = row.id === '';
        return {
          day: Number(day),
          id: isSum ? `charges-${day}-${debit === CUSTOMERS ? 'usd' : 'diem'}` : row.id,
          kind,
          debit,
          credit,
          amountNano: row.amount,
          postings: Number(row.postings),
          // Fees belong to no account of a customer.
          accountId: row.account_id.startsWith('house:') ? '' : row.account_id,
          note: note ?? '',
        };
      });
      return {
        fromDay,
        toDay,
        // Entries of a day keep their order: movements, the charges, then costs.
        entries: [...posted, ...supplied].toSorted((a, b) => a.day - b.day),
        owedBeforeNano: await owedAt(tx, fromDay - 1),
        owedNano: await owedAt(tx, toDay),
      };
    },
    { timeoutMs: READ_TIMEOUT_MS, isSnapshot: true },
  );
}

/** The sum of all balances at the end of a day: the present sum without the later postings. */
async function owedAt(tx: Queryable, day: number): Promise<bigint> {
  const [row] = await tx.query<{ present: bigint; later: bigint }>(
    `SELECT (SELECT CAST(COALESCE(sum(balance_nano), 0) AS BIGINT) FROM ledger_account) AS present,
     (SELECT CAST(COALESCE(sum(CASE WHEN credit = '${CUSTOMERS}' THEN amount_nano ELSE 0 END
        - CASE WHEN debit = '${CUSTOMERS}' THEN amount_nano ELSE 0 END), 0) AS BIGINT)
      FROM (SELECT amount_nano, ${SIDES} FROM ledger_transfer WHERE day > $1) sides) AS later`,
    [day],
  );
  return (row?.present ?? 0n) - (row?.later ?? 0n);
}

export interface JournalSum extends Pick<JournalEntry, 'kind' | 'debit' | 'credit'> {
  amountNano: bigint;
  postings: number;
}

/** Sums of the journal by kind and accounts. */
export function journalSums({ entries }: Books): JournalSum[] {
  const sums = new Map<string, JournalSum>();
  for (const { kind, debit, credit, amountNano, postings } of entries) {
    const name = `${kind} ${debit} ${credit}`;
    const sum = sums.get(name) ?? { kind, debit, credit, amountNano: 0n, postings: 0 };
    sum.amountNano += amountNano;
    sum.postings += postings;
    sums.set(name, sum);
  }
  return [...sums.values()].toSorted((a, b) => (a.kind < b.kind ? -1 : 1));
}
