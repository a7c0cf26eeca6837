/**
 * Adds charges to the sums by day, key, model, engine and tag, which overviews read instead of the
 * receipts.
 */
import { DAY_MS, dayOf } from '../../core/clock.ts';
import type { Parameter } from '../../db/db.ts';
import type { Taken } from '../rules.ts';
import type { UsageRecord } from './records.ts';
import { MARK_LATE } from './report-sums.ts';
import { FORGET_SUMS, LATE_AFTER_MS } from './spent-ever.ts';
import type { Writer } from './states.ts';

interface Charge extends Taken {
  readonly usage: UsageRecord;
}

interface Sums {
  readonly day: number;
  readonly usage: UsageRecord;
  requests: number;
  errors: number;
  prompt: number;
  completion: number;
  usdNano: bigint;
  diemNano: bigint;
  /** `null` if no request has a known cost of its supplier. */
  costNano: bigint | null;
}

const ADDED = ['requests', 'errors', 'prompt_tokens', 'completion_tokens', 'usd_nano', 'diem_nano'];

function addingTo(table: 'ledger_usage_day' | 'ledger_usage_tag', key: readonly string[]): string {
  const columns = [...key, ...ADDED];
  const places = columns.map((_, at) => `$${at + 1}`);
  const sums = ADDED.map((name) => `${name} = ${table}.${name} + excluded.${name}`);
  if (table === 'ledger_usage_day') {
    places.push(`CAST($${columns.push('cost_nano')} AS BIGINT)`);
    const both = `${table}.cost_nano + excluded.cost_nano`;
    sums.push(`cost_nano = COALESCE(${both}, ${table}.cost_nano, excluded.cost_nano)`);
  }
  return `INSERT INTO ${table} (${columns.join(', ')}) VALUES (${places.join(', ')})
    ON CONFLICT (${key.join(', ')}) DO UPDATE SET ${sums.join(', ')}`;
}

const DAY_KEY = ['account_id', 'day', 'key_id', 'model_id', 'engine'];
export const ADD_TO_DAY = addingTo('ledger_usage_day', DAY_KEY);
const TAG_KEY = ['account_id', 'name', 'day', 'value', 'key_id', 'model_id'];
const ADD_TO_TAG = addingTo('ledger_usage_tag', TAG_KEY);

/** Statuses that count as errors in the sums: no response was produced. */
const IS_ERROR: Readonly<Record<UsageRecord['status'], 0 | 1>> = {
  completed: 0,
  aborted: 0,
  failed: 1,
  expired: 1,
  running: 0,
};

function sumsOf({ usage }: Charge): Sums {
  return {
    day: dayOf(usage.createdMs),
    usage,
    requests: 0,
    errors: 0,
    prompt: 0,
    completion: 0,
    usdNano: 0n,
    diemNano: 0n,
    costNano: null,
  };
}

function add(sums: Sums, { usage, usdNano, diemNano }: Charge): void {
  const { status, tokens, supplier } = usage;
  sums.requests += 1;
  sums.errors += IS_ERROR[status];
  sums.prompt += tokens.prompt;
  sums.completion += tokens.completion;
  sums.usdNano += usdNano;
  sums.diemNano += diemNano;
  if (supplier !== undefined) sums.costNano = (sums.costNano ?? 0n) + supplier.nano;
}

export function addToDays(writer: Writer, charges: readonly Charge[], nowMs: number): void {
  const rows: Sums[] = [];
  for (const charge of charges) {
    let row = rows.find((one) => isSameRow(one, charge));
    if (row === undefined) rows.push((row = sumsOf(charge)));
    add(row, charge);
  }
  let late: Set<string> | undefined;
  for (const sums of rows) {
    const { day, usage } = sums;
    const { accountId, keyId, modelId, replica = '' } = usage;
    const row = withSums([accountId, day, keyId, modelId, replica], sums);
    row.push(sums.costNano);
    writer.execute(ADD_TO_DAY, row);
    if (nowMs - day * DAY_MS >= DAY_MS) writer.execute(MARK_LATE, [day, usage.requestId]);
    if (nowMs - day * DAY_MS >= LATE_AFTER_MS) (late ??= new Set()).add(accountId);
  }
  late?.forEach((accountId) => writer.execute(FORGET_SUMS, [accountId]));
}

function isSameRow({ usage, day }: Sums, charge: Charge): boolean {
  const { accountId, keyId, modelId, replica, createdMs } = charge.usage;
  return (
    usage.accountId === accountId &&
    usage.keyId === keyId &&
    usage.modelId === modelId &&
    usage.replica === replica &&
    day === dayOf(createdMs)
  );
}

export function addToTags(writer: Writer, charges: readonly Charge[]): void {
  const rows = new Map<string, { readonly key: Parameter[]; readonly sums: Sums }>();
  for (const charge of charges) {
    const { accountId, keyId, modelId, createdMs, metadata = {} } = charge.usage;
    for (const [name, value] of Object.entries(metadata)) {
      const key = [accountId, name, dayOf(createdMs), value, keyId, modelId];
      const id = JSON.stringify(key);
      let row = rows.get(id);
      if (row === undefined) rows.set(id, (row = { key, sums: sumsOf(charge) }));
      add(row.sums, charge);
    }
  }
  for (const { key, sums } of rows.values()) writer.execute(ADD_TO_TAG, withSums(key, sums));
}

/** Adds the sums to the parameters of a row, in the order of `ADDED`. */
function withSums(key: Parameter[], sums: Sums): Parameter[] {
  key.push(sums.requests, sums.errors, sums.prompt, sums.completion, sums.usdNano, sums.diemNano);
  return key;
}
