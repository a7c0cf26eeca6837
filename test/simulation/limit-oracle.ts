/**
 * The requests per minute of a key: never more than its limit are served, none is rejected before the limit is
 * used, and no server shows more requests as left than there are.
 */
import { REQUESTS_PER_MINUTE } from './callers.ts';
import { demand } from './oracles.ts';
import type { FaultKind } from './plan.ts';
import type { ChatSeen, Town } from './town.ts';

const MINUTE_MS = 60_000;
/** The servers notify each other of their counts in this time. */
const NOTIFIED_MS = 1_000;
/** A server without a database of its own begins its counts again when it starts. */
const ENDS_COUNTS: ReadonlySet<FaultKind> = new Set([
  'crash',
  'restart',
  'failed flush',
  'full disk',
]);
/** They concern neither the servers nor their database. */
const HARMLESS: ReadonlySet<FaultKind> = new Set([
  'slow model',
  'failing model',
  'dead model',
  'card processor',
  'reorganisation',
  'lagging node',
  'lying node',
  'failing node',
]);

/** Holds for each minute of each limited key and model. */
export function minutesHold({ accounts, beginsMs, plan, chats }: Town): void {
  const before = (ends: (kind: FaultKind) => boolean) => {
    const untilMs = beginsMs + (plan.faults.find(({ kind }) => ends(kind))?.atMs ?? Infinity);
    return ({ seenMs }: ChatSeen): boolean => seenMs < untilMs;
  };
  const isCounted = before(
    (kind) => kind === 'clock' || (plan.processes === 1 && ENDS_COUNTS.has(kind)),
  );
  const isQuiet = before((kind) => !HARMLESS.has(kind));
  const limited = new Set(
    accounts.filter(({ kind }) => kind === 'limited').map(({ name }) => name),
  );
  const buckets = Map.groupBy(
    chats.filter((one) => limited.has(one.caller) && isCounted(one)),
    ({ caller, model }) => `${caller} to ${model}`,
  );
  for (const [name, all] of buckets) {
    const whole = all.filter((one) => minuteOf(one.sentMs) === minuteOf(one.seenMs));
    for (const minute of Map.groupBy(whole, ({ seenMs }) => minuteOf(seenMs)).values()) {
      const served = minute.filter(({ status }) => status === 200);
      const count = served.length;
      demand(count <= REQUESTS_PER_MINUTE, () => `${count} requests of ${name} in a minute`);
      for (const one of minute.filter(isQuiet)) {
        const earlier = served.filter(({ seenMs }) => seenMs < one.sentMs - NOTIFIED_MS);
        const left = REQUESTS_PER_MINUTE - earlier.length;
        const { requestsLeft: shown, requestId } = one;
        if (shown === undefined) continue;
        demand(shown <= left, () => `${requestId} of ${name} shows ${shown}, ${left} are left`);
        if (isRejected(one)) isRejectedRightly(name, one, chats);
      }
    }
  }
}

/** With requests left, a model server has rejected it. */
function isRejected({ status, requestsLeft }: ChatSeen): boolean {
  return status === 429 && requestsLeft === 0;
}

/** The limit is used up, by this request at the latest: a model server may have rejected that. */
function isRejectedRightly(name: string, one: ChatSeen, chats: readonly ChatSeen[]): void {
  const count = chats.filter(
    (other) =>
      other.caller === one.caller &&
      other.model === one.model &&
      (other === one || !isRejected(other)) &&
      other.sentMs <= one.seenMs &&
      minuteOf(other.seenMs) >= minuteOf(one.sentMs),
  ).length;
  demand(
    count >= REQUESTS_PER_MINUTE,
    () => `${one.requestId} of ${name} is rejected after ${count}`,
  );
}

function minuteOf(ms: number): number {
  return Math.floor(ms / MINUTE_MS);
}
