/** `farebox usage`: what was asked for and what it cost, added up. */
import { dayOf, dayStartMs, isoTime } from '../core/clock.ts';
import { type UsageGroup, type UsageGrouping, usageGroups } from '../billing/ledger/ledger.ts';
import { type Command, findAccount, pastMs, shownUsd, withStores } from './command.ts';
import { table } from './terminal.ts';

const GROUPINGS = { day: 'day', model: 'model_id', account: 'account_id', key: 'key_id' } as const;
const NAMES = ['day', 'model', 'account', 'key'] as const;
const DEFAULT_SINCE = '30d';
/** More lines than a person reads; the dearest come first. */
const MAX_ROWS = 1_000;
const DAY_CHARACTERS = 10;

export const usageCommand: Command = {
  name: 'usage',
  summary: 'Show requests, tokens and what they cost',
  usage: 'usage [--by <what>] [--since <date or span>] [--account <account>]',
  details: `
  --by <what>             ${NAMES.join(', ')} (default: day)
  --since <date or span>  such as 2027-01-31 or 7d, in whole days of UTC (default: ${DEFAULT_SINCE})
  --account <account>     of this account alone (default: of all)`,
  run: (invocation) => {
    const name = invocation.word('by', NAMES) ?? 'day';
    const by: UsageGrouping = GROUPINGS[name];
    return withStores(invocation, async ({ stores, clock }) => {
      const wanted = invocation.text('account');
      const account = wanted === undefined ? undefined : await findAccount(stores, wanted);
      const nowMs = clock.nowMs();
      const since = pastMs(invocation.text('since') ?? DEFAULT_SINCE, nowMs);
      const days = { fromDay: dayOf(since), toDay: dayOf(nowMs) };
      const filter = { ...days, accountId: account?.id };
      const groups = await usageGroups(stores.store, filter, [by], MAX_ROWS);
      const rows = groups.map((group) => ({ [name]: nameOf(group, by), ...sumsOf(group) }));
      invocation.answer(
        () => rows,
        () =>
          table(
            [name.toUpperCase(), 'REQUESTS', 'FAILED', 'IN', 'OUT', 'USD', 'DIEM'],
            rows.map((row) => Object.values(row).map(String)),
            ['REQUESTS', 'FAILED', 'IN', 'OUT', 'USD', 'DIEM'],
          ),
      );
    });
  },
};

function nameOf(group: UsageGroup, by: UsageGrouping): string {
  if (by !== 'day') return group[by] ?? '-';
  return isoTime(dayStartMs(Number(group.day))).slice(0, DAY_CHARACTERS);
}

function sumsOf(group: UsageGroup) {
  return {
    requests: Number(group.requests),
    failed: Number(group.errors),
    promptTokens: Number(group.prompt_tokens),
    completionTokens: Number(group.completion_tokens),
    usd: shownUsd(group.usd_nano),
    diem: shownUsd(group.diem_nano),
  };
}
