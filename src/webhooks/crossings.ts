/**
 * Finds what has come to its threshold since it was last looked at, for all webhooks in some reads a
 * page, and puts it on its way. A balance is told when it falls below, and again only after it was
 * enough in between; a cap once in its period; the spending of a day once that day; each again when its
 * amount or its threshold was changed.
 */
import {
  type AccountFigures,
  type CapUse,
  accountFigures,
  usedCaps,
} from '../billing/ledger/ledger.ts';
import { type Clock, DAY_MS, dayOf, dayStartMs, isoTime } from '../core/clock.ts';
import type { Ids } from '../core/ids.ts';
import { ZERO, toUsdNumber } from '../core/money.ts';
import type { Store } from '../db/db.ts';
import type { Budget, Identity } from '../identity/identity.ts';
import type { NewDelivery, Webhook } from './webhook.ts';
import { type WebhookTable, crossingKey } from './webhook-table.ts';

const PAGE = 200;
/** Caps of one account that are looked at before it is the next account's turn. */
const CAPS_A_TURN = 100;
/** After so many that were looked at, or told, a page has no further turn: the next minute goes on. */
const MOST_LOOKED_AT = 10_000;
const MOST_TOLD = 1_000;
/** While so many messages wait for an address, what its caps have come to is told later. */
const MOST_WAITING = 2_000;
/** That a cap for ever is still where it was told is noted once in this time. */
const SEEN_MS = 10 * DAY_MS;

export interface CrossingParts {
  readonly table: WebhookTable;
  readonly store: Store;
  readonly identity: Pick<Identity, 'findKey' | 'budgets'>;
  readonly clock: Clock;
  readonly ids: Ids;
}

/** The caps of an account that are looked at next: behind an id, used by at least so many percent. */
interface CapTurn {
  readonly accountId: string;
  readonly afterId: string;
  readonly leastPercent: number;
}

/** By account, the last cap that was looked at, where there were more than a round has time for. */
export type CapPlaces = ReadonlyMap<string, string>;

/** Looks at every webhook. Goes on with caps where the round before came to, and says where it did. */
export async function findCrossings(parts: CrossingParts, before: CapPlaces): Promise<CapPlaces> {
  const places = new Map<string, string>();
  let afterId: string | undefined = '';
  while (afterId !== undefined) {
    const page: Webhook[] = await parts.table.page(afterId, PAGE);
    if (page.length > 0) await lookAt(parts, page, before, places);
    afterId = page.length < PAGE ? undefined : page.at(-1)?.id;
  }
  return places;
}

async function lookAt(
  parts: CrossingParts,
  page: readonly Webhook[],
  before: CapPlaces,
  places: Map<string, string>,
): Promise<void> {
  const accountIds = [...new Set(page.map(({ accountId }) => accountId))];
  const figures = await accountFigures(parts.store, accountIds, parts.clock.nowMs());
  await lookAtBalances(parts, page, figures);
  await tell(parts, daysOf(parts, page, figures));
  await lookAtCaps(parts, page, before, places);
}

/** Tells what was not told yet; says how much that was. */
async function tell(parts: CrossingParts, crossed: readonly Crossed[]): Promise<number> {
  const { table } = parts;
  const nowMs = parts.clock.nowMs();
  let count = 0;
  for (const some of Map.groupBy(crossed, (one) => `${one.webhookId} ${one.event}`).values()) {
    const told = await table.told(some, nowMs, nowMs - SEEN_MS);
    for (const crossing of some) {
      if (told.has(crossingKey(crossing))) continue;
      const data = await crossing.data();
      if (data === undefined) continue;
      await table.add(deliveryOf(parts, crossing, data));
      count += 1;
    }
  }
  return count;
}

async function lookAtBalances(
  parts: CrossingParts,
  page: readonly Webhook[],
  figures: ReadonlyMap<string, AccountFigures>,
): Promise<void> {
  for (const webhook of page) {
    const { id: webhookId, accountId, balanceNano: threshold, timesLow } = webhook;
    if (threshold === undefined) continue;
    const balanceNano = figures.get(accountId)?.balanceNano ?? 0n;
    const isLow = balanceNano < threshold;
    if (isLow === webhook.isLow) continue;
    if (!isLow) {
      await parts.table.rose(webhookId);
      continue;
    }
    const data = { balanceUsd: toUsdNumber(balanceNano), thresholdUsd: toUsdNumber(threshold) };
    const event = 'balance.low';
    const crossing = { webhookId, accountId, event, subject: '', period: timesLow + 1 } as const;
    await parts.table.fell(webhook, deliveryOf(parts, crossing, data));
  }
}

type Data = Readonly<Record<string, unknown>>;

interface Crossed extends Pick<
  NewDelivery,
  'webhookId' | 'accountId' | 'event' | 'subject' | 'period'
> {
  /** What is told of it; `undefined` tells nothing. */
  readonly data: () => Data | undefined | Promise<Data | undefined>;
}

function daysOf(
  { clock }: CrossingParts,
  page: readonly Webhook[],
  figures: ReadonlyMap<string, AccountFigures>,
): Crossed[] {
  const dayMs = dayStartMs(dayOf(clock.nowMs()));
  return page.flatMap(({ id: webhookId, accountId, dailyNano }): Crossed[] => {
    const spentNano = figures.get(accountId)?.spentTodayNano ?? 0n;
    if (dailyNano === undefined || spentNano < dailyNano) return [];
    const data = {
      date: isoTime(dayMs).slice(0, 10),
      spentUsd: toUsdNumber(spentNano),
      thresholdUsd: toUsdNumber(dailyNano),
    };
    const event = 'spend.daily';
    // Another threshold is told of for itself.
    const subject = String(dailyNano);
    return [{ webhookId, accountId, event, subject, period: dayMs, data: () => data }];
  });
}

/**
 * Caps of keys and of budgets. Each account has its turn before one with very many has a further one:
 * its values of a tag delay its own messages, and no other's.
 */
async function lookAtCaps(
  parts: CrossingParts,
  page: readonly Webhook[],
  before: CapPlaces,
  places: Map<string, string>,
): Promise<void> {
  const withCaps = page.filter((one) => (one.keyPercent ?? one.budgetPercent) !== undefined);
  const crowded = await parts.table.crowded(withCaps, MOST_WAITING);
  const asking = withCaps.filter(({ id }) => !crowded.has(id));
  const webhooks = Map.groupBy(asking, ({ accountId }) => accountId);
  const owners = new CapOwners(parts.identity);
  let turn = [...webhooks].map(([accountId, some]): CapTurn => {
    const percents = some.flatMap(({ keyPercent, budgetPercent }) => [
      keyPercent ?? 100,
      budgetPercent ?? 100,
    ]);
    const afterId = before.get(accountId) ?? '';
    return { accountId, afterId, leastPercent: Math.min(...percents) };
  });
  let lookedAt = 0;
  let told = 0;
  while (turn.length > 0) {
    const caps = await usedCaps(parts.store, turn, CAPS_A_TURN, parts.clock.nowMs());
    const crossed = caps.flatMap((cap) =>
      cap.isCurrent
        ? (webhooks.get(cap.accountId) ?? []).flatMap((one) => capCrossed(one, cap, owners))
        : [],
    );
    told += await tell(parts, crossed);
    lookedAt += caps.length;
    turn = furtherTurn(turn, caps);
    if (lookedAt >= MOST_LOOKED_AT || told >= MOST_TOLD) break;
  }
  for (const { accountId, afterId } of turn) places.set(accountId, afterId);
}

/** Accounts that have more caps than they were given, from there on. */
function furtherTurn(turn: readonly CapTurn[], caps: readonly CapUse[]): CapTurn[] {
  const given = Map.groupBy(caps, ({ accountId }) => accountId);
  return turn.flatMap((one) => {
    const some = given.get(one.accountId) ?? [];
    const last = some.at(-1);
    return last === undefined || some.length < CAPS_A_TURN ? [] : [{ ...one, afterId: last.id }];
  });
}

function capCrossed(
  { id: webhookId, accountId, keyPercent, budgetPercent }: Webhook,
  cap: CapUse,
  owners: CapOwners,
): Crossed[] {
  const isOfKey = cap.budgetId === undefined;
  const percent = isOfKey ? keyPercent : budgetPercent;
  if (percent === undefined || cap.percent < percent) return [];
  return [
    {
      webhookId,
      accountId,
      event: isOfKey ? 'key.limit_reached' : 'budget.limit_reached',
      // Another amount, and another threshold, are told of for themselves.
      subject: `${cap.id} ${cap.usdLimitNano ?? '-'} ${cap.diemLimitNano ?? '-'} ${percent}`,
      period: cap.periodStartMs,
      data: async () => {
        const owner = isOfKey ? await owners.key(cap) : await owners.budget(cap);
        return owner && { ...owner, usedPercent: cap.percent, thresholdPercent: percent };
      },
    },
  ];
}

/** Whose caps they are: budgets, which are few, are read once for each account. */
class CapOwners {
  readonly #identity: CrossingParts['identity'];
  readonly #budgets = new Map<string, Promise<readonly Budget[]>>();

  constructor(identity: CrossingParts['identity']) {
    this.#identity = identity;
  }

  /** Revoked keys stay silent. */
  async key({ accountId, id, period }: CapUse): Promise<Data | undefined> {
    const key = await this.#identity.findKey(accountId, id);
    return key && { apiKeyId: id, description: key.description, limitPeriod: period };
  }

  /** And so do budgets that are deleted. */
  async budget({ accountId, budgetId, tagValue, period, usdLimitNano }: CapUse) {
    const budgets = this.#budgets.get(accountId) ?? this.#identity.budgets(accountId);
    this.#budgets.set(accountId, budgets);
    const budget = (await budgets).find((one) => one.id === budgetId);
    if (budget === undefined) return undefined;
    const { id, tag = null } = budget;
    const usd = toUsdNumber(usdLimitNano ?? ZERO);
    return { budgetId: id, tag, value: tagValue ?? null, period, usd } satisfies Data;
  }
}

/** A message of Standard Webhooks: what, when, and its data. */
export function deliveryOf(
  { clock, ids }: Pick<CrossingParts, 'clock' | 'ids'>,
  crossing: Pick<NewDelivery, 'webhookId' | 'accountId' | 'event' | 'subject' | 'period'>,
  data: Data,
): NewDelivery {
  const { webhookId, accountId, event, subject, period } = crossing;
  const createdMs = clock.nowMs();
  const told = { webhookId, accountId, ...data };
  const body = JSON.stringify({ type: event, timestamp: isoTime(createdMs), data: told });
  const id = `msg_${ids.ordered(createdMs)}`;
  return { id, webhookId, accountId, event, subject, period, body, createdMs };
}
