/**
 * Gas: the coin of a chain that our keys pay for transactions, in its smallest unit.
 *
 * The id of a transaction is stored before a node receives it, also for attempts that replace each other.
 * The amount is stored once, when its block is final, so that no reorganisation changes it. A transaction
 * that can never be mined is removed.
 */
import { DAY_MS, SECOND_MS, dayOf } from '../core/clock.ts';
import type { Queryable, Store } from '../db/db.ts';
import { evmNetwork } from '../core/evm-networks.ts';
import { isEvm, ledgerNetwork } from './networks.ts';
import type { PaymentServices } from './payment-options.ts';
import type { Rail, SentTransaction } from './rail.ts';

const FIRST_CHECK_MS = 20 * SECOND_MS;
const MAX_WAIT_MS = 3_600 * SECOND_MS;
/** A later check than any can be was written before the clock was set back. `$2` is the time. */
const IS_DUE = `(next_check_ms <= $2 OR next_check_ms > $2 + ${MAX_WAIT_MS})`;
const MAX_CHECKED = 50;
/** A lagging node may lack a receipt. */
const DEAD_AFTER_MS = DAY_MS;

/** Returns `false` if the transaction was stored before. */
export async function storeSent(
  store: Pick<Store, 'query'>,
  { transaction, network, payer, number, sentMs }: SentTransaction,
): Promise<boolean> {
  const rows = await store.query(
    `INSERT INTO payments_gas (tx_id, network, payer, number, sent_ms, next_check_ms)
     VALUES ($1, $2, $3, $4, $5, $6) ON CONFLICT (tx_id) DO NOTHING RETURNING tx_id`,
    [transaction, network, payer, number, sentMs, sentMs + FIRST_CHECK_MS],
  );
  return rows.length === 1;
}

interface GasServices extends Pick<PaymentServices, 'store' | 'clock'> {
  readonly rails: ReadonlyMap<string, Pick<Rail, 'gasReader'>>;
}

/** Records the gas of transactions whose blocks are final. Several processes may do so at once. */
export async function recordGas(
  { store, clock, rails }: GasServices,
  network: string,
): Promise<void> {
  const nowMs = clock.nowMs();
  // The next check waits as long as the transaction is old, also if the nodes fail now.
  const rows = await store.query<{
    tx_id: string;
    network: string;
    payer: string;
    number: bigint;
    sent_ms: bigint;
  }>(
    `UPDATE payments_gas SET next_check_ms = $2 +
       CASE WHEN $2 - sent_ms > $4 THEN $4 WHEN sent_ms > $2 THEN $5 ELSE $5 + $2 - sent_ms END
     WHERE amount IS NULL AND ${IS_DUE} AND tx_id IN (
       SELECT tx_id FROM payments_gas WHERE amount IS NULL AND network = $1 AND ${IS_DUE}
       ORDER BY next_check_ms LIMIT $3)
     RETURNING tx_id, network, payer, number, sent_ms`,
    [network, nowMs, MAX_CHECKED, MAX_WAIT_MS, FIRST_CHECK_MS],
  );
  if (rows.length === 0) return;
  const read = await rails.get(network)?.gasReader();
  if (read === undefined) return;
  for (const { tx_id: transaction, sent_ms: sent, ...row } of rows) {
    const sentMs = Number(sent);
    const state = await read({ ...row, transaction, sentMs });
    const isOpen = 'tx_id = $1 AND amount IS NULL';
    if (state === 'dead' && nowMs - sentMs > DEAD_AFTER_MS) {
      await store.query(`DELETE FROM payments_gas WHERE ${isOpen}`, [transaction]);
    } else if (typeof state === 'object') {
      await store.query(`UPDATE payments_gas SET amount = $2, day = $3 WHERE ${isOpen}`, [
        transaction,
        state.amount.toString(),
        dayOf(state.paidMs),
      ]);
    }
  }
}

/** Amounts are in the smallest unit of `coin`, which has `decimals`. */
export interface GasPayment {
  readonly day: number;
  readonly transaction: string;
  readonly payer: string;
  /** Name of the network in the accounts of the ledger. */
  readonly network: string;
  readonly coin: string;
  readonly decimals: number;
  readonly amount: bigint;
}

export interface GasTotal extends Pick<GasPayment, 'network' | 'coin' | 'decimals'> {
  readonly transactions: number;
  /** Paid before the first day, and from it until the last day. */
  readonly before: bigint;
  readonly amount: bigint;
}

export interface Gas {
  readonly payments: readonly GasPayment[];
  readonly totals: readonly GasTotal[];
}

/** The lower digits of an amount are summed alone, because a sum of wei exceeds 63 bits. */
const LOWER_DIGITS = 9;
const UPPER = 1_000_000_000n;
const PADDED = `('${'0'.repeat(LOWER_DIGITS)}' || amount)`;
const UPPER_OF = `CAST(substr(${PADDED}, 1, length(amount)) AS BIGINT)`;
const LOWER_OF = `CAST(substr(${PADDED}, length(amount) + 1, ${LOWER_DIGITS}) AS BIGINT)`;

/** Recorded gas of a range of days, at most `limit` payments, with the sums of the database. */
export async function readGas(
  tx: Queryable,
  fromDay: number,
  toDay: number,
  limit: number,
): Promise<Gas> {
  const rows = await tx.query<{
    day: bigint;
    tx_id: string;
    payer: string;
    network: string;
    amount: string;
  }>(
    `SELECT day, tx_id, payer, network, amount FROM payments_gas
     WHERE amount IS NOT NULL AND day >= $1 AND day <= $2 ORDER BY day, sent_ms, tx_id LIMIT $3`,
    [fromDay, toDay, limit],
  );
  const sums = await tx.query<{
    network: string;
    is_before: bigint;
    upper: bigint;
    lower: bigint;
    transactions: bigint;
  }>(
    `SELECT network, is_before, CAST(sum(${UPPER_OF}) AS BIGINT) AS upper,
     CAST(sum(${LOWER_OF}) AS BIGINT) AS lower, count(*) AS transactions
     FROM (SELECT network, amount, CASE WHEN day < $1 THEN 1 ELSE 0 END AS is_before
       FROM payments_gas WHERE amount IS NOT NULL AND day <= $2) paid
     GROUP BY network, is_before`,
    [fromDay, toDay],
  );
  const totals = new Map<string, GasTotal>();
  for (const row of sums) {
    const of = coinOf(row.network);
    const known = totals.get(of.network) ?? { ...of, transactions: 0, before: 0n, amount: 0n };
    const sum = row.upper * UPPER + row.lower;
    totals.set(
      of.network,
      row.is_before === 1n
        ? { ...known, before: known.before + sum }
        : {
            ...known,
            amount: known.amount + sum,
            transactions: known.transactions + Number(row.transactions),
          },
    );
  }
  const payments = rows.map(({ day, tx_id: transaction, payer, network, amount }) => ({
    ...coinOf(network),
    day: Number(day),
    transaction,
    payer,
    amount: BigInt(amount),
  }));
  const byName = [...totals.values()].toSorted((a, b) => (a.network < b.network ? -1 : 1));
  return { payments, totals: byName };
}

function coinOf(network: string): Pick<GasPayment, 'network' | 'coin' | 'decimals'> {
  const name = ledgerNetwork(network);
  if (!isEvm(network)) return { network: name, coin: 'SOL', decimals: 9 };
  return { network: name, coin: evmNetwork(network)?.coin ?? 'ETH', decimals: 18 };
}
