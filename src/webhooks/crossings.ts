/**
 * Finds what has come to its threshold since it was last looked at, for all webhooks in some reads a
 * page, and puts it on its way. A balance is told when it falls below, and again only after it was
 * enough in between; a cap once in its period; the spending of a day once that day.
 */
import {
  type AccountFigures,
  type CapUse,
  accountFigures,
  usedCaps,
} from '../billing/ledger/ledger.ts';
import { type Clock, dayOf, dayStartMs, isoTime } from '../core/clock.ts';
import type { Ids } from '../core/ids.ts';
import { toUsdNumber } from '../core/money.ts';
import type { Store } from '../db/db.ts';
import type { ApiKey, Identity } from '../identity/identity.ts';
import type { NewDelivery, Webhook } from './webhook.ts';
import { type WebhookTable, crossingKey } from './webhook-table.ts';

/** Webhooks that are looked at in one go. */
const PAGE = 200;

export interface CrossingParts {
  readonly table: WebhookTable;
  readonly store: Store;
  readonly identity: Pick<Identity, 'listKeys'>;
  readonly clock: Clock;
  readonly ids: Ids;
}

/** Looks at every webhook. */
export async function findCrossings(parts: CrossingParts): Promise<void> {
  let afterId: string | undefined = '';
  while (afterId !== undefined) {
    const page: Webhook[] = await parts.table.page(afterId, PAGE);
    if (page.length > 0) await lookAt(parts, page);
    afterId = page.length < PAGE ? undefined : page.at(-1)?.id;
  }
}

async function lookAt(parts: CrossingParts, page: readonly Webhook[]): Promise<void> {
  const accountIds = [...new Set(page.map(({ accountId }) => accountId))];
  const figures = await accountFigures(parts.store, accountIds, parts.clock.nowMs());
  await lookAtBalances(parts, page, figures);
  const crossed = [...daysOf(parts, page, figures), ...(await keysOf(parts, page))];
  if (crossed.length === 0) return;
  const periods = [...new Set(crossed.map(({ period }) => period))];
  const webhookIds = [...new Set(crossed.map(({ webhookId }) => webhookId))];
  const told = await parts.table.told(webhookIds, periods);
  const keys = new Map<string, readonly ApiKey[]>();
  for (const crossing of crossed) {
    if (told.has(crossingKey(crossing))) continue;
    const { accountId } = crossing;
    // Revoked keys stay silent, and so does a cap that is none of a key.
    if (crossing.event === 'key.limit_reached' && !keys.has(accountId)) {
      keys.set(accountId, await parts.identity.listKeys(accountId));
    }
    const data = crossing.data(keys.get(accountId) ?? []);
    if (data !== undefined) await parts.table.add(deliveryOf(parts, crossing, data));
  }
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
  readonly data: (keys: readonly ApiKey[]) => Data | undefined;
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
    return [{ webhookId, accountId, event, subject: '', period: dayMs, data: () => data }];
  });
}

async function keysOf(
  { store, clock }: CrossingParts,
  page: readonly Webhook[],
): Promise<Crossed[]> {
  const asking = page.filter(({ keyPercent }) => keyPercent !== undefined);
  if (asking.length === 0) return [];
  const accountIds = [...new Set(asking.map(({ accountId }) => accountId))];
  const leastPercent = Math.min(...asking.map(({ keyPercent }) => keyPercent ?? 0));
  const caps = await usedCaps(store, accountIds, leastPercent, clock.nowMs());
  const capsByAccount = Map.groupBy(caps, ({ accountId }) => accountId);
  return asking.flatMap((webhook) =>
    (capsByAccount.get(webhook.accountId) ?? [])
      .filter(({ percent }) => percent >= (webhook.keyPercent ?? 0))
      .map((cap) => keyCrossed(webhook, cap)),
  );
}

function keyCrossed({ id: webhookId, accountId, keyPercent }: Webhook, cap: CapUse): Crossed {
  return {
    webhookId,
    accountId,
    event: 'key.limit_reached',
    subject: cap.id,
    period: cap.periodStartMs,
    data: (keys) => {
      const key = keys.find(({ id }) => id === cap.id);
      if (key === undefined) return undefined;
      const { id: apiKeyId, description } = key;
      const { percent: usedPercent, period: limitPeriod } = cap;
      return { apiKeyId, description, limitPeriod, usedPercent, thresholdPercent: keyPercent };
    },
  };
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
