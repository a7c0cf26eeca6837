/** `GET /admin/usage` and `GET /admin/revenue`: revenue, cost and margin of the whole service. */
import {
  type AnyUsageFilter,
  type CostGroup,
  type UsageGrouping,
  type UsageSums,
  type UsageTagRow,
  costGroups,
  tagSums,
} from '../../billing/ledger/ledger.ts';
import { assert } from '../../core/assert.ts';
import { decimalUsd } from '../../core/money.ts';
import { readQuery } from '../../http/read-request.ts';
import type { RequestContext } from '../../http/request-context.ts';
import { type Route, get } from '../../http/route.ts';
import { accountNames } from '../../identity/identity.ts';
import type { AccountParts } from '../account-parts.ts';
import {
  type DayQuery,
  badQuery,
  csvField,
  dayText,
  headOf,
  rangeOf,
  wantsCsv,
} from '../usage-query.ts';
import {
  GROUPS_CSV_HEAD,
  type GroupsResponse,
  OPERATOR_USAGE,
  OperatorUsageQuery,
  REVENUE,
  RevenueQuery,
} from './operator-usage-schema.ts';

/** More rows than a chart can show. */
const MAX_REVENUE_ROWS = 20_000;

const COLUMNS = {
  day: 'day',
  model: 'model_id',
  engine: 'engine',
  account: 'account_id',
  key: 'key_id',
} as const satisfies Record<string, UsageGrouping>;

export function operatorUsageRoutes(parts: AccountParts): Route[] {
  const { stores, clock } = parts;
  return [
    get('/admin/usage', 'operator', OPERATOR_USAGE, async (context) => {
      const { by, limit, format, ...query } = readQuery(context, OperatorUsageQuery);
      const filter = filterOf(parts, query);
      if (by === 'tag' && filter.engine !== undefined) {
        throw badQuery('engine', 'Must not be set with "by=tag": tags have no sums by engine');
      }
      if (by === 'tag') {
        const rows = await tagSums(stores.store, filter, { limit, nowMs: clock.nowMs() });
        const {
          cost_nano: _cost,
          uncosted: _count,
          ...totals
        } = await totalsOf(parts, filter, [], limit);
        const sums = { filter, rows, totals, names: NO_NAMES };
        return sendSums(context, sums, wantsCsv(context, { format }));
      }
      const rows = await groupsOf(parts, filter, [COLUMNS[by]], limit);
      const totals = await totalsOf(parts, filter, rows, limit);
      const names = await accountNames(
        parts.stores.identity,
        by === 'account' ? accountsOf(rows) : [],
      );
      await sendSums(context, { filter, rows, totals, names }, wantsCsv(context, { format }));
    }),
    get('/admin/revenue', 'operator', REVENUE, async (context) => {
      const { by, format, ...query } = readQuery(context, RevenueQuery);
      const filter = filterOf(parts, query);
      const rows = await groupsOf(parts, filter, ['day', COLUMNS[by]], MAX_REVENUE_ROWS);
      const totals = await totalsOf(parts, filter, rows, MAX_REVENUE_ROWS);
      const sums = { filter, rows, totals, names: NO_NAMES };
      await sendSums(context, sums, wantsCsv(context, { format }));
    }),
  ];
}

const NO_NAMES: ReadonlyMap<string, string> = new Map();

function groupsOf(
  { stores, clock }: AccountParts,
  filter: AnyUsageFilter,
  by: readonly UsageGrouping[],
  limit: number,
): Promise<readonly CostGroup[]> {
  return costGroups(stores.store, filter, { by, limit, nowMs: clock.nowMs() });
}

/** The rows are read a second time only if the limit has omitted some. */
async function totalsOf(
  parts: AccountParts,
  filter: AnyUsageFilter,
  rows: readonly CostGroup[],
  limit: number,
): Promise<SumsRow> {
  const [first] = rows;
  if (first !== undefined && rows.length < limit)
    return rows.slice(1).reduce<SumsRow>(added, first);
  const [totals] = await groupsOf(parts, filter, [], 1);
  assert(totals !== undefined, 'a sum has one row');
  return totals;
}

function added(a: SumsRow, b: CostGroup): SumsRow {
  const { cost_nano: costNano = null } = a;
  return {
    requests: a.requests + b.requests,
    errors: a.errors + b.errors,
    prompt_tokens: a.prompt_tokens + b.prompt_tokens,
    completion_tokens: a.completion_tokens + b.completion_tokens,
    usd_nano: a.usd_nano + b.usd_nano,
    diem_nano: a.diem_nano + b.diem_nano,
    cost_nano: costNano === null ? b.cost_nano : costNano + (b.cost_nano ?? 0n),
    uncosted: (a.uncosted ?? 0n) + b.uncosted,
  };
}

function accountsOf(rows: readonly Row[]): string[] {
  return rows.flatMap((row) => ('account_id' in row ? (row.account_id ?? []) : []));
}

interface RangeQuery extends DayQuery {
  readonly account?: string | undefined;
  readonly model?: string | undefined;
  readonly engine?: string | undefined;
}

function filterOf({ clock }: AccountParts, query: RangeQuery): AnyUsageFilter {
  const { account: accountId, model: modelId, engine } = query;
  return { accountId, modelId, engine, ...rangeOf(query, clock.nowMs()) };
}

type Row = CostGroup | UsageTagRow;
type SumsRow = UsageSums & Partial<Pick<CostGroup, 'cost_nano' | 'uncosted'>>;

interface Sums {
  readonly filter: AnyUsageFilter;
  readonly rows: readonly Row[];
  readonly totals: SumsRow;
  /** Names of accounts by id. */
  readonly names: ReadonlyMap<string, string>;
}

async function sendSums(
  context: RequestContext,
  { filter, rows, totals, names }: Sums,
  isCsv: boolean,
): Promise<void> {
  if (isCsv) {
    const name = `usage-${dayText(filter.fromDay)}-${dayText(filter.toDay)}.csv`;
    context.set('content-disposition', `attachment; filename="${name}"`);
    const text = [GROUPS_CSV_HEAD, ...rows.map(csvLine)].join('\r\n');
    return context.bytes(200, 'text/csv; charset=utf-8', Buffer.from(`${text}\r\n`));
  }
  const body: GroupsResponse = {
    ...headOf(filter),
    totals: sumsOf(totals),
    data: rows.map((row) => {
      const members = membersOf(row);
      const accountName = names.get(members.accountId ?? '');
      return { ...members, ...(accountName === undefined ? {} : { accountName }), ...sumsOf(row) };
    }),
  };
  await context.json(200, body);
}

/** The members that a row is grouped by. */
function membersOf(row: Row): Partial<GroupsResponse['data'][0]> {
  if ('name' in row) return { tag: row.name, value: row.value };
  const { day, model_id: model, engine, account_id: accountId, key_id: keyId } = row;
  return {
    ...(day === undefined ? {} : { date: dayText(Number(day)) }),
    ...(model === undefined ? {} : { model }),
    ...(engine === undefined ? {} : { engine: engine === '' ? null : engine }),
    ...(accountId === undefined ? {} : { accountId }),
    ...(keyId === undefined ? {} : { apiKeyId: keyId === '' ? null : keyId }),
  };
}

function csvLine(row: Row): string {
  const { date = '', model = '', accountId = '', apiKeyId, tag = '', value = '' } = membersOf(row);
  const { requests, errors, promptTokens, completionTokens, usd, diem, ...costs } = sumsOf(row);
  const names = [date, model, accountId, apiKeyId ?? '', tag, value].map(csvField);
  const { supplierUsd, marginUsd, uncostedRequests } = costs;
  const more = [supplierUsd, marginUsd, uncostedRequests].map((one) => one ?? '');
  const engine = csvField(membersOf(row).engine ?? '');
  const sums = [requests, errors, promptTokens, completionTokens, usd, diem];
  return [...names, ...sums, engine, ...more].join(',');
}

function sumsOf(row: SumsRow): GroupsResponse['totals'] {
  const { cost_nano: costNano = null, uncosted } = row;
  return {
    requests: Number(row.requests),
    errors: Number(row.errors),
    promptTokens: Number(row.prompt_tokens),
    completionTokens: Number(row.completion_tokens),
    usd: decimalUsd(row.usd_nano),
    diem: decimalUsd(row.diem_nano),
    supplierUsd: costNano === null ? null : decimalUsd(costNano),
    marginUsd: costNano === null ? null : signedUsd(row.usd_nano - costNano),
    uncostedRequests: uncosted === undefined ? null : Number(uncosted),
  };
}

function signedUsd(nano: bigint): string {
  return nano < 0n ? `-${decimalUsd(-nano)}` : decimalUsd(nano);
}
