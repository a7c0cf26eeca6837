/** Reads of many top-ups at once, for audits and checks; what changes rows is `top-up-table.ts`. */
import type { Nano } from '../core/money.ts';
import type { Queryable } from '../db/db.ts';
import { unitsToNano } from './networks.ts';
import type { TopUpRow } from './top-up-table.ts';

/** Rows first seen at `sinceMs` or later, in order of their key. */
export async function pageOfTopUps(
  store: Queryable,
  page: { readonly sinceMs: number; readonly after: string; readonly limit: number },
): Promise<readonly TopUpRow[]> {
  return await store.query<TopUpRow>(
    `SELECT * FROM payments_topup WHERE payment_key > $1 AND created_ms >= $2
     ORDER BY payment_key LIMIT $3`,
    [page.after, page.sinceMs, page.limit],
  );
}

export async function countTopUps(store: Queryable, sinceMs: number): Promise<number> {
  const [row] = await store.query<{ total: bigint }>(
    'SELECT count(*) AS total FROM payments_topup WHERE created_ms >= $1',
    [sinceMs],
  );
  return Number(row?.total ?? 0n);
}

/** The transactions of all payments on a network, whatever came of them. */
export async function topUpTransactions(
  store: Queryable,
  network: string,
): Promise<ReadonlySet<string>> {
  const rows = await store.query<{ tx_id: string }>(
    'SELECT tx_id FROM payments_topup WHERE network = $1 AND tx_id IS NOT NULL',
    [network],
  );
  return new Set(rows.map((row) => row.tx_id));
}

/** Sum of the credited payments on networks with this prefix. */
export async function creditedTotal(tx: Queryable, networkPrefix: string): Promise<Nano> {
  const [row] = await tx.query<{ units: bigint }>(
    `SELECT COALESCE(sum(amount_units), 0) AS units FROM payments_topup
     WHERE state = 'credited' AND network LIKE $1`,
    [`${networkPrefix}%`],
  );
  return unitsToNano(row?.units ?? 0n);
}
