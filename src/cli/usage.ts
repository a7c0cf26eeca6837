/** `farebox usage`: sums of requests, tokens and costs. */
import { dayOf, dayStartMs, isoTime } from '../core/clock.ts';
import { type UsageGroup, type UsageGrouping, usageGroups } from '../billing/ledger/ledger.ts';
import { type Cli, findAccount, oneOf, pastMs, shownUsd } from './command.ts';
import { table } from './terminal.ts';

const GROUPINGS = { day: 'day', model: 'model_id', account: 'account_id', key: 'key_id' } as const;
const NAMES = ['day', 'model', 'account', 'key'] as const;
const DEFAULT_SINCE = '30d';
const MAX_ROWS = 1_000;
const DAY_CHARACTERS = 10;

export function usageCommand(cli: Cli): void {
  cli.program
    .command('usage')
    .description('Show the sums of requests, tokens and costs')
    .option('--by <what>', `group by ${NAMES.join(', ')}`, oneOf(NAMES), 'day')
    .option(
      '--since <date or span>',
      `first UTC day, such as 2027-01-31 or 7d (default: ${DEFAULT_SINCE})`,
      pastMs,
    )
    .option('--account <account>', 'id, name or wallet address of one account (default: all)')
    .action(({ by: name, since = pastMs(DEFAULT_SINCE), account: wanted }) => {
      const by: UsageGrouping = GROUPINGS[name];
      return cli.withStores(async ({ stores, clock }) => {
        const account = wanted === undefined ? undefined : await findAccount(stores, wanted);
        const days = { fromDay: dayOf(since), toDay: dayOf(clock.nowMs()) };
        const filter = { ...days, accountId: account?.id };
        const groups = await usageGroups(stores.store, filter, [by], MAX_ROWS);
        const rows = groups.map((group) => ({ [name]: labelOf(group, by), ...sumsOf(group) }));
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

function labelOf(group: UsageGroup, by: UsageGrouping): string {
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
