/** `GET /admin/usage` and `GET /admin/revenue`: sums of the whole service. */
import {
  type AnyUsageFilter,
  type UsageGroup,
  type UsageGrouping,
  type UsageTagRow,
  usageGroups,
  usageTags,
  usageTotals,
} from '../../billing/ledger/ledger.ts';
import { decimalUsd } from '../../core/money.ts';
import { readQuery } from '../../http/read-request.ts';
import type { RequestContext } from '../../http/request-context.ts';
import { type Route, get } from '../../http/route.ts';
import type { AccountParts } from '../account-parts.ts';
import { type DayQuery, csvField, dayText, headOf, rangeOf, wantsCsv } from '../usage-query.ts';
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
  account: 'account_id',
  key: 'key_id',
} as const satisfies Record<string, UsageGrouping>;

export function operatorUsageRoutes(parts: AccountParts): Route[] {
  const store = parts.stores.store.readerFor('');
  return [
    get('/admin/usage', 'operator', OPERATOR_USAGE, async (context) => {
      const { by, limit, format, ...query } = readQuery(context, OperatorUsageQuery);
      const filter = filterOf(parts, query);
      const rows =
        by === 'tag'
          ? await usageTags(store, filter, { limit, offset: 0 })
          : await usageGroups(store, filter, [COLUMNS[by]], limit);
      await sendSums(parts, context, filter, rows, wantsCsv(context, { format }));
    }),
    get('/admin/revenue', 'operator', REVENUE, async (context) => {
      const { format, ...query } = readQuery(context, RevenueQuery);
      const filter = filterOf(parts, query);
      const rows = await usageGroups(store, filter, ['day', 'model_id'], MAX_REVENUE_ROWS);
      await sendSums(parts, context, filter, rows, wantsCsv(context, { format }));
    }),
  ];
}

interface RangeQuery extends DayQuery {
  readonly account?: string | undefined;
  readonly model?: string | undefined;
}

function filterOf({ clock }: AccountParts, query: RangeQuery): AnyUsageFilter {
  return { accountId: query.account, modelId: query.model, ...rangeOf(query, clock.nowMs()) };
}

async function sendSums(
  { stores }: AccountParts,
  context: RequestContext,
  filter: AnyUsageFilter,
  rows: readonly (UsageGroup | UsageTagRow)[],
  isCsv: boolean,
): Promise<void> {
  if (isCsv) {
    const name = `usage-${dayText(filter.fromDay)}-${dayText(filter.toDay)}.csv`;
    context.set('content-disposition', `attachment; filename="${name}"`);
    const text = [GROUPS_CSV_HEAD, ...rows.map(csvLine)].join('\r\n');
    return context.bytes(200, 'text/csv; charset=utf-8', Buffer.from(`${text}\r\n`));
  }
  const totals = await usageTotals(stores.store.readerFor(''), filter);
  const body: GroupsResponse = {
    ...headOf(filter),
    totals: sumsOf(totals),
    data: rows.map((row) => ({ ...membersOf(row), ...sumsOf(row) })),
  };
  await context.json(200, body);
}

/** The members that a row is grouped by. */
function membersOf(row: UsageGroup | UsageTagRow): Partial<GroupsResponse['data'][0]> {
  if ('name' in row) return { tag: row.name, value: row.value };
  const { day, model_id: model, account_id: accountId, key_id: keyId } = row;
  return {
    ...(day === undefined ? {} : { date: dayText(Number(day)) }),
    ...(model === undefined ? {} : { model }),
    ...(accountId === undefined ? {} : { accountId }),
    ...(keyId === undefined ? {} : { apiKeyId: keyId === '' ? null : keyId }),
  };
}

function csvLine(row: UsageGroup | UsageTagRow): string {
  const { date = '', model = '', accountId = '', apiKeyId, tag = '', value = '' } = membersOf(row);
  const { requests, errors, promptTokens, completionTokens, usd, diem } = sumsOf(row);
  const names = [date, model, accountId, apiKeyId ?? '', tag, value].map(csvField);
  return [...names, requests, errors, promptTokens, completionTokens, usd, diem].join(',');
}

type SumsRow = Pick<
  UsageTagRow,
  'requests' | 'errors' | 'prompt_tokens' | 'completion_tokens' | 'usd_nano' | 'diem_nano'
>;

function sumsOf(row: SumsRow): GroupsResponse['totals'] {
  return {
    requests: Number(row.requests),
    errors: Number(row.errors),
    promptTokens: Number(row.prompt_tokens),
    completionTokens: Number(row.completion_tokens),
    usd: decimalUsd(row.usd_nano),
    diem: decimalUsd(row.diem_nano),
  };
}
