/**
 * Finds crossed thresholds of all webhooks and queues their messages. A message is sent once: for a balance
 * each time it falls below the threshold, for a cap once per period, for the spending of a day once per
 * day; and again after a change of the amount or of the threshold.
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
/** Caps of one account that are checked before the next account. */
const CAPS_PER_TURN = 100;
/** Limits of a page: checked caps, and queued messages. The next minute continues. */
const MAX_CHECKED = 10_000;
const MAX_QUEUED = 1_000;
/** The caps of a webhook with this many waiting messages are checked later. */
const MAX_WAITING = 2_000;
/** Interval of the updates of `seen_ms` for caps without a period. */
const SEEN_MS = 10 * DAY_MS;

export interface CrossingParts {
  readonly table: WebhookTable;
  readonly store: Store;
  readonly identity: Pick<Identity, 'findKey' | 'budgets'>;
  readonly clock: Clock;
  readonly ids: Ids;
}

/** The next caps of an account: after an id, used by at least `leastPercent`. */
interface CapTurn {
  readonly accountId: string;
  readonly afterId: string;
  readonly leastPercent: number;
}

/** The last checked cap of each account whose caps were not all checked. */
export type CapPlaces = ReadonlyMap<string, string>;

/** Checks all webhooks. Continues with the caps after `before`, and returns the next places. */
export async function findCrossings(parts: CrossingParts, before: CapPlaces): Promise<CapPlaces> {
  const places = new Map<string, string>();
  let afterId: string | undefined = '';
  while (afterId !== undefined) {
    const page: Webhook[] = await parts.table.page(afterId, PAGE);
    if (page.length > 0) await checkPage(parts, page, before, places);
    afterId = page.length < PAGE ? undefined : page.at(-1)?.id;
  }
  return places;
}

async function checkPage(
  parts: CrossingParts,
  page: readonly Webhook[],
  before: CapPlaces,
  places: Map<string, string>,
): Promise<void> {
  const accountIds = [...new Set(page.map(({ accountId }) => accountId))];
  const figures = await accountFigures(parts.store, accountIds, parts.clock.nowMs());
  await checkBalances(parts, page, figures);
  await queue(parts, daysOf(parts, page, figures));
  await checkCaps(parts, page, before, places);
}

/** Queues messages for new crossings; returns their number. */
async function queue(parts: CrossingParts, crossed: readonly Crossed[]): Promise<number> {
  const { table } = parts;
  const nowMs = parts.clock.nowMs();
  let count = 0;
  for (const some of Map.groupBy(crossed, (one) => `${one.webhookId} ${one.event}`).values()) {
    const queued = await table.queued(some, nowMs, nowMs - SEEN_MS);
    for (const crossing of some) {
      if (queued.has(crossingKey(crossing))) continue;
      const data = await crossing.data();
      if (data === undefined) continue;
      await table.add(deliveryOf(parts, crossing, data));
      count += 1;
    }
  }
  return count;
}

async function checkBalances(
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
  /** Data of the message; `undefined` if none is sent. */
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
    // A changed threshold is a new crossing.
    const subject = String(dailyNano);
    return [{ webhookId, accountId, event, subject, period: dayMs, data: () => data }];
  });
}

/**
 * Checks the caps of keys and budgets. Accounts take turns, so that an account with very many caps (values
 * of a tag) delays its own messages only.
 */
async function checkCaps(
  parts: CrossingParts,
  page: readonly Webhook[],
  before: CapPlaces,
  places: Map<string, string>,
): Promise<void> {
  const withCaps = page.filter((one) => (one.keyPercent ?? one.budgetPercent) !== undefined);
  const full = await parts.table.withQueue(withCaps, MAX_WAITING);
  const checked = withCaps.filter(({ id }) => !full.has(id));
  const webhooks = Map.groupBy(checked, ({ accountId }) => accountId);
  const owners = new CapOwners(parts.identity);
  let turn = [...webhooks].map(([accountId, some]): CapTurn => {
    const percents = some.flatMap(({ keyPercent, budgetPercent }) => [
      keyPercent ?? 100,
      budgetPercent ?? 100,
    ]);
    const afterId = before.get(accountId) ?? '';
    return { accountId, afterId, leastPercent: Math.min(...percents) };
  });
  let checkedCaps = 0;
  let queued = 0;
  while (turn.length > 0) {
    const caps = await usedCaps(parts.store, turn, CAPS_PER_TURN, parts.clock.nowMs());
    const crossed = caps.flatMap((cap) =>
      cap.isCurrent
        ? (webhooks.get(cap.accountId) ?? []).flatMap((one) => capCrossed(one, cap, owners))
        : [],
    );
    queued += await queue(parts, crossed);
    checkedCaps += caps.length;
    turn = nextTurn(turn, caps);
    if (checkedCaps >= MAX_CHECKED || queued >= MAX_QUEUED) break;
  }
  for (const { accountId, afterId } of turn) places.set(accountId, afterId);
}

/** Accounts with further caps. */
function nextTurn(turn: readonly CapTurn[], caps: readonly CapUse[]): CapTurn[] {
  const given = Map.groupBy(caps, ({ accountId }) => accountId);
  return turn.flatMap((one) => {
    const some = given.get(one.accountId) ?? [];
    const last = some.at(-1);
    return last === undefined || some.length < CAPS_PER_TURN ? [] : [{ ...one, afterId: last.id }];
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
      // A changed amount or threshold is a new crossing.
      subject: `${cap.id} ${cap.usdLimitNano ?? '-'} ${cap.diemLimitNano ?? '-'} ${percent}`,
      period: cap.periodStartMs,
      data: async () => {
        const owner = isOfKey ? await owners.key(cap) : await owners.budget(cap);
        return owner && { ...owner, usedPercent: cap.percent, thresholdPercent: percent };
      },
    },
  ];
}

/** The owners of caps. Budgets, which are few, are read once for each account. */
class CapOwners {
  readonly #identity: CrossingParts['identity'];
  readonly #budgets = new Map<string, Promise<readonly Budget[]>>();

  constructor(identity: CrossingParts['identity']) {
    this.#identity = identity;
  }

  /** Returns `undefined` for a revoked key. */
  async key({ accountId, id, period }: CapUse): Promise<Data | undefined> {
    const key = await this.#identity.findKey(accountId, id);
    return key && { apiKeyId: id, description: key.description, limitPeriod: period };
  }

  /** Returns `undefined` for a deleted budget. */
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

/** A message of Standard Webhooks. */
export function deliveryOf(
  { clock, ids }: Pick<CrossingParts, 'clock' | 'ids'>,
  crossing: Pick<NewDelivery, 'webhookId' | 'accountId' | 'event' | 'subject' | 'period'>,
  data: Data,
): NewDelivery {
  const { webhookId, accountId, event, subject, period } = crossing;
  const createdMs = clock.nowMs();
  const timestamp = isoTime(createdMs);
  const body = JSON.stringify({ type: event, timestamp, data: { webhookId, accountId, ...data } });
  const id = `msg_${ids.ordered(createdMs)}`;
  return { id, webhookId, accountId, event, subject, period, body, createdMs };
}
