/** Rate limits that do not belong to a model: per address, wallet or endpoint. */
import type { Windows } from '../billing/limits/limits.ts';
import { type Clock, SECOND_MS } from '../core/clock.ts';
import { Fault } from '../core/faults.ts';

export interface LimitParts {
  readonly windows: Windows;
  readonly clock: Clock;
}

/** Counts a request against the limit of this minute. Throws 429. */
export async function limitRequests(
  { windows, clock }: LimitParts,
  bucket: string,
  perMinute: number,
  message = `This endpoint takes ${perMinute} requests a minute; try again when the minute is over`,
): Promise<void> {
  const nowMs = clock.nowMs();
  const taken = await windows.take(
    { bucket, tokens: 0, requestLimit: perMinute, tokenLimit: 0 },
    nowMs,
  );
  if (taken.ok) return;
  throw new Fault('RATE_LIMIT_EXCEEDED', {
    message,
    retryAfterSeconds: Math.ceil((taken.state.resetsAtMs - nowMs) / SECOND_MS),
  });
}
