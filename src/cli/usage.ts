/** `farebox usage`: requests, tokens and costs, added up. */
import { dayOf, dayStartMs, isoTime } from '../core/clock.ts';
import { type UsageGroup, type UsageGrouping, usageGroups } from '../billing/ledger/ledger.ts';
import { type Cli, findAccount, oneOf, pastMs, shownUsd } from './command.ts';
import { table } from './terminal.ts';

const GROUPINGS = { day: 'day', model: 'model_id', account: 'account_id', key: 'key_id' } as const;
const NAMES = ['day', 'model', 'account', 'key'] as const;
const DEFAULT_SINCE = '30d';
/** More lines than a person reads; the most expensive come first. */
const MAX_ROWS = 1_000;
const DAY_CHARACTERS = 10;

export function usageCommand(cli: Cli): void {
  cli.program
    .command('usage')
    .description('Show requests, tokens and what they cost')
    .option('--by <what>', NAMES.join(', '), oneOf(NAMES), 'day')
    .option(
      '--since <date or span>',
      `such as 2027-01-31 or 7d, in whole days of UTC (default: ${DEFAULT_SINCE})`,
      pastMs,
    )
    .option('--account <id or name>', 'of this account alone (default: of all)')
    .action(({ by: name, since = pastMs(DEFAULT_SINCE), account: wanted }) => {
      const by: UsageGrouping = GROUPINGS[name];
      return cli.withStores(async ({ stores, clock }) => {
        const account = wanted === undefined ? undefined : await findAccount(stores, wanted);
        const days = { fromDay: dayOf(since), toDay: dayOf(clock.nowMs()) };
        const filter = { ...days, accountId: account?.id };
        const groups = await usageGroups(stores.store, filter, [by], MAX_ROWS);
        const rows = groups.map((group) => ({ [name]: nameOf(group, by), ...sumsOf(group) }));
        const figures = ['REQUESTS', 'FAILED', 'IN', 'OUT', 'USD', 'DIEM'];
        cli.print(
          rows,
          table(
            [name.toUpperCase(), ...figures],
            rows.map((row) => Object.values(row).map(String)),
            figures,
          ),
        );
      });
    });
}

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
