/**
 * The requests per minute of a key: never more than its limit are served, none is rejected before the limit is
 * used, and no server shows more requests as left than there are.
 */
import { REQUESTS_PER_MINUTE } from './callers.ts';
import { demand } from './oracles.ts';
import { type FaultKind, faultType } from './plan.ts';
import type { ChatSeen, Town } from './town.ts';

const MINUTE_MS = 60_000;
/** The servers notify each other of their counts in this time. */
const NOTIFIED_MS = 1_000;

/** Holds for each minute of each limited key and model. */
export function minutesHold({ accounts, beginsMs, plan, chats }: Town): void {
  const before = (ends: (kind: FaultKind) => boolean) => {
    const untilMs = beginsMs + (plan.faults.find(({ kind }) => ends(kind))?.atMs ?? Infinity);
    return ({ seenMs }: ChatSeen): boolean => seenMs < untilMs;
  };
  const isCounted = before((kind) => {
    // A server without a database of its own begins its counts again when it starts.
    const beginsAgain = faultType(kind).isDown || kind === 'full disk';
    return kind === 'clock' || (plan.processes === 1 && beginsAgain);
  });
  const isQuiet = before((kind) => faultType(kind).of !== 'peer');
  const limited = new Set(
    accounts.filter(({ kind }) => kind === 'limited').map(({ name }) => name),
  );
  const whole = chats.filter(
    (one) =>
      limited.has(one.caller) && isCounted(one) && minuteOf(one.sentMs) === minuteOf(one.seenMs),
  );
  const minutes = Map.groupBy(
    whole,
    ({ caller, model, seenMs }) => `${caller} to ${model} in minute ${minuteOf(seenMs)}`,
  );
  for (const [name, minute] of minutes) {
    const served = minute.filter(({ status }) => status === 200);
    demand(served.length <= REQUESTS_PER_MINUTE, `${served.length} requests of ${name}`);
    for (const one of minute.filter(isQuiet)) {
      const earlier = served.filter(({ seenMs }) => seenMs < one.sentMs - NOTIFIED_MS);
      const left = REQUESTS_PER_MINUTE - earlier.length;
      const { requestsLeft: shown, requestId } = one;
      if (shown === undefined) continue;
      demand(shown <= left, `${requestId} of ${name} shows ${shown}, ${left} are left`);
      if (isRejected(one)) isRejectedRightly(name, one, chats);
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
  const { requestId } = one;
  demand(count >= REQUESTS_PER_MINUTE, `${requestId} of ${name} is rejected after ${count}`);
}

function minuteOf(ms: number): number {
  return Math.floor(ms / MINUTE_MS);
}
