/**
 * Postings: one row moves one amount from the debited to the credited account. Rows are only ever
 * added.
 */
import { dayOf } from '../../core/clock.ts';
import type { Nano } from '../../core/money.ts';
import type { Queryable, Statement } from '../../db/db.ts';
import type { HouseAccount, TransferKind } from './records.ts';

export interface Transfer {
  /** Request id or payment key: with `part` and the day, unique. */
  readonly id: string;
  readonly part: number;
  /** The caller whose history shows it. */
  readonly accountId: string;
  readonly debitAccount: HouseAccount | (string & {});
  readonly creditAccount: HouseAccount | (string & {});
  readonly amountNano: Nano;
  readonly balanceAfterNano: Nano;
  readonly kind: TransferKind;
  readonly requestId?: string;
  readonly modelId?: string;
  readonly note?: string;
  readonly nowMs: number;
  /** The day whose daily credit was spent, when it is not today. */
  readonly day?: number;
}

const INSERT = `INSERT INTO ledger_transfer (id, part, day, account_id, debit_account,
  credit_account, amount_nano, balance_after_nano, kind, request_id, model_id, note, created_ms)
  VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13)`;

export function transferStatement(transfer: Transfer): Statement {
  return {
    sql: INSERT,
    parameters: [
      transfer.id,
      transfer.part,
      transfer.day ?? dayOf(transfer.nowMs),
      transfer.accountId,
      transfer.debitAccount,
      transfer.creditAccount,
      transfer.amountNano,
      transfer.balanceAfterNano,
      transfer.kind,
      transfer.requestId ?? null,
      transfer.modelId ?? null,
      transfer.note ?? null,
      transfer.nowMs,
    ],
  };
}

export function insertTransfer(tx: Queryable, transfer: Transfer): Promise<void> {
  return tx.run([transferStatement(transfer)]);
}
