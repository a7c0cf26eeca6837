/**
 * Sums of usage by day, model, engine, key, account or tag, read from the rollups and never from the
 * receipts. A failed and refunded job counts as a request and as an error, with an amount of zero.
 */
import type { Parameter, Queryable, Store } from '../../db/db.ts';
import { type Condition, type ReportKind, reportReader, reportSource } from './report-sums.ts';

export interface UsageSums {
  readonly requests: bigint;
  readonly errors: bigint;
  readonly prompt_tokens: bigint;
  readonly completion_tokens: bigint;
  readonly usd_nano: bigint;
  readonly diem_nano: bigint;
}

export interface UsageDayRow extends UsageSums {
  readonly day: bigint;
  readonly key_id: string;
  readonly model_id: string;
  /** The value of the tag that the filter names; `null` if it names none. */
  readonly tag_value: string | null;
}

/** Selects rollups from `fromDay` to `toDay`, inclusive; missing members match all. */
export interface UsageFilter {
  readonly accountId: string;
  readonly fromDay: number;
  readonly toDay: number;
  readonly keyId?: string | undefined;
  readonly modelId?: string | undefined;
  /** Not together with a tag. */
  readonly engine?: string | undefined;
  /** Only requests with this tag, and with this value if one is given. */
  readonly tag?: string | undefined;
  readonly tagValue?: string | undefined;
}

export type AnyUsageFilter = Omit<UsageFilter, 'accountId'> & {
  readonly accountId?: string | undefined;
};

interface UsagePage {
  readonly limit: number;
  readonly offset: number;
}

export const NET_USD = '(usd_nano - refunded_usd_nano)';
export const NET_DIEM = '(diem_nano - refunded_diem_nano)';
const NET_SPENT = `sum(${NET_USD} + ${NET_DIEM})`;

/** The sum of an expression over all rows; 0 without rows. */
export function total(what: string): string {
  return `CAST(COALESCE(sum(${what}), 0) AS BIGINT)`;
}

const COUNTS = ['requests', 'errors', 'prompt_tokens', 'completion_tokens'];
const COUNTED = COUNTS.map((name) => `${total(name)} AS ${name}`).join(', ');
const ADDED_UP = `${COUNTED}, ${total(NET_USD)} AS usd_nano, ${total(NET_DIEM)} AS diem_nano`;

/** The conditions of a filter on columns of the rollups. */
export function equalTo({
  accountId,
  keyId,
  modelId,
  engine,
  tag,
  tagValue,
}: Omit<AnyUsageFilter, 'fromDay' | 'toDay'>): Condition[] {
  const columns = [
    ['account_id', accountId],
    ['key_id', keyId],
    ['model_id', modelId],
    ['engine', engine],
    ['name', tag],
    ['value', tagValue],
  ] as const;
  return columns.flatMap(([name, value]) => (value === undefined ? [] : [[name, value] as const]));
}

/** Returns `FROM … WHERE …` for the matching rollups, or tag rollups if a tag is named. */
export function matching(filter: AnyUsageFilter, isByTag = filter.tag !== undefined) {
  const parameters: (string | number)[] = [filter.fromDay, filter.toDay];
  let from = `FROM ledger_usage_${isByTag ? 'tag' : 'day'} WHERE day >= $1 AND day <= $2`;
  for (const [name, value] of equalTo(filter)) from += ` AND ${name} = $${parameters.push(value)}`;
  return { from, parameters };
}

/** Returns rollups by day, model and key, newest day first; with a tag also by its value. */
export function usageDays(
  store: Queryable,
  filter: UsageFilter,
  page: UsagePage,
): Promise<readonly UsageDayRow[]> {
  const { from, parameters } = matching(filter);
  const value = filter.tag === undefined ? 'NULL' : 'value';
  const columns = dayColumns(filter);
  return store.query<UsageDayRow>(
    `SELECT day, key_id, model_id, ${value} AS tag_value, ${ADDED_UP} ${from} GROUP BY ${columns}
     ORDER BY day DESC, ${columns} ${pageOf(page, parameters)}`,
    parameters,
  );
}

export function countUsageDays(store: Queryable, filter: UsageFilter): Promise<number> {
  return countGroups(store, dayColumns(filter), matching(filter));
}

async function countGroups(
  store: Queryable,
  columns: string,
  { from, parameters }: ReturnType<typeof matching>,
): Promise<number> {
  const [row] = await store.query<{ total: bigint }>(
    `SELECT count(*) AS total FROM (SELECT DISTINCT ${columns} ${from}) groups_found`,
    parameters,
  );
  return Number(row?.total ?? 0n);
}

function dayColumns({ tag }: UsageFilter): string {
  return tag === undefined ? 'day, model_id, key_id' : 'day, model_id, key_id, value';
}

function pageOf({ limit, offset }: UsagePage, parameters: (string | number)[]): string {
  return `LIMIT $${parameters.push(limit)} OFFSET $${parameters.push(offset)}`;
}

export async function usageTotals(store: Queryable, filter: AnyUsageFilter): Promise<UsageSums> {
  const { from, parameters } = matching(filter);
  const [row] = await store.query<UsageSums>(`SELECT ${ADDED_UP} ${from}`, parameters);
  if (row === undefined) throw new Error('A sum has one row');
  return row;
}

export interface UsageTagRow extends UsageSums {
  readonly name: string;
  readonly value: string;
}

/** Returns the sums of each value of each matching tag, by name, highest cost first. */
export function usageTags(
  store: Queryable,
  filter: AnyUsageFilter,
  page: UsagePage,
): Promise<readonly UsageTagRow[]> {
  const { from, parameters } = matching(filter, true);
  return store.query<UsageTagRow>(
    `SELECT name, value, ${ADDED_UP} ${from} GROUP BY name, value
     ORDER BY name, ${NET_SPENT} DESC, value ${pageOf(page, parameters)}`,
    parameters,
  );
}

export function countUsageTags(store: Queryable, filter: UsageFilter): Promise<number> {
  return countGroups(store, 'name, value', matching(filter, true));
}

/** As `usageTags` of all accounts; reads the sums of past days for reports if they have the groups. */
export async function tagSums(
  store: Store,
  filter: AnyUsageFilter,
  { limit, nowMs }: Pick<CostQuery, 'limit' | 'nowMs'>,
): Promise<readonly UsageTagRow[]> {
  const { fromDay, toDay } = filter;
  const equal = equalTo(filter);
  if (equal.length > 0) return usageTags(store.readerFor(''), filter, { limit, offset: 0 });
  const reader = reportReader(store);
  const wanted = { fromDay, toDay, columns: ['name', 'value'], equal, nowMs };
  const { from, parameters } = await reportSource(reader, 'tag', wanted);
  return reader.query<UsageTagRow>(
    `SELECT name, value, ${TAG_SUMS} ${from} GROUP BY name, value
     ORDER BY name, ${SPENT} DESC, value LIMIT $${parameters.push(limit)}`,
    parameters,
  );
}

export type UsageGrouping = 'day' | 'model_id' | 'account_id' | 'key_id' | 'engine';

export interface UsageGroup extends UsageSums {
  readonly day?: bigint;
  readonly model_id?: string;
  readonly account_id?: string;
  readonly key_id?: string;
  readonly engine?: string;
}

/** Returns sums grouped by `by`, newest day or highest cost first; default: all accounts. */
export function usageGroups(
  store: Queryable,
  filter: AnyUsageFilter,
  by: readonly UsageGrouping[],
  limit: number,
): Promise<readonly UsageGroup[]> {
  const source = { sums: ADDED_UP, spent: NET_SPENT, ...matching(filter) };
  return summed<UsageGroup>(store, source, by, limit);
}

/** Sums for operators, with the costs of suppliers. */
export interface CostGroup extends UsageGroup {
  /** `null` if no engine of the group has prices of a supplier. */
  readonly cost_nano: bigint | null;
  /** Requests to engines without such prices. */
  readonly uncosted: bigint;
}

const SPENT = 'sum(usd_nano + diem_nano)';
const TAG_SUMS = `${COUNTED}, ${total('usd_nano')} AS usd_nano, ${total('diem_nano')} AS diem_nano`;
const COST_SUMS = `${TAG_SUMS}, CAST(sum(cost_nano) AS BIGINT) AS cost_nano,
  ${total('uncosted')} AS uncosted`;

type CostFilter = Omit<AnyUsageFilter, 'tag' | 'tagValue'>;

interface CostQuery {
  readonly by: readonly UsageGrouping[];
  readonly limit: number;
  readonly nowMs: number;
}

/**
 * As `usageGroups`, with costs; without columns one row with the totals. Not with a tag. Reads the
 * sums of past days for reports if they have the groups.
 */
export async function costGroups(
  store: Store,
  filter: CostFilter,
  { by, limit, nowMs }: CostQuery,
): Promise<readonly CostGroup[]> {
  const { fromDay, toDay } = filter;
  const equal = equalTo(filter);
  const kind = reportKind(by, equal);
  const reader = kind === undefined ? store.readerFor('') : reportReader(store);
  const wanted = { fromDay, toDay, columns: by, equal, nowMs };
  const { from, parameters } = await reportSource(reader, kind, wanted);
  return summed<CostGroup>(reader, { sums: COST_SUMS, spent: SPENT, from, parameters }, by, limit);
}

/** The stored sums that have these groups and conditions; `undefined`: only those of each day. */
function reportKind(
  by: readonly UsageGrouping[],
  equal: readonly Condition[],
): ReportKind | undefined {
  const isOfAccounts = (name: string) => name === 'account_id' || name === 'key_id';
  if (equal.some(([name]) => isOfAccounts(name))) return undefined;
  if (!by.some(isOfAccounts)) return 'engine';
  return by.length === 1 && equal.length < 2 ? 'account' : undefined;
}

interface Summed {
  readonly sums: string;
  /** The sum by which rows are ordered. */
  readonly spent: string;
  readonly from: string;
  readonly parameters: Parameter[];
}

/** A job that another engine has run leaves a row without requests, which is omitted. */
function summed<T extends UsageGroup>(
  store: Queryable,
  { sums, spent, from, parameters }: Summed,
  by: readonly UsageGrouping[],
  limit: number,
): Promise<readonly T[]> {
  if (by.length === 0) return store.query<T>(`SELECT ${sums} ${from}`, parameters);
  const columns = by.join(', ');
  const order = by[0] === 'day' ? 'day DESC, ' : '';
  return store.query<T>(
    `SELECT ${columns}, ${sums} ${from} GROUP BY ${columns} HAVING sum(requests) > 0
     ORDER BY ${order}${spent} DESC, ${columns} LIMIT $${parameters.push(limit)}`,
    parameters,
  );
}
