/**
 * Server-sent events for all pages: the balance, the totals of today, settled requests and top-ups.
 * The stream is closed while the page is hidden and while no session exists.
 */
import { type Signal, effect, signal, useSignal, useSignalEffect } from '@preact/signals';
import { BASE } from './page-facts.ts';
import { untilReachable } from './server-state.ts';
import { SESSION_ENDED, leave, session } from './session.ts';
import type { Balance, Receipt, Sums, TopUp } from './shapes.ts';

export type LiveState = 'off' | 'connecting' | 'on';

export const liveState = signal<LiveState>('off');
export const balance = signal<Balance | undefined>(undefined);
/** Totals of the UTC day. */
export const today = signal<Sums | undefined>(undefined);
export const lastRequest = signal<Receipt | undefined>(undefined);
export const lastTopUp = signal<TopUp | undefined>(undefined);

const RETRY_MS = 5_000;
/** Delay that combines a burst of requests into one reload. */
const QUIET_MS = 400;

/** Opens and closes the stream with the session and the visibility of the page. */
export function startLive(): void {
  const isVisible = signal(!document.hidden);
  document.addEventListener('visibilitychange', () => {
    isVisible.value = !document.hidden;
  });
  addEventListener('offline', () => void untilReachable());
  effect(() => {
    const id = session.value?.id;
    if (id === undefined) {
      balance.value = undefined;
      today.value = undefined;
      lastRequest.value = undefined;
      lastTopUp.value = undefined;
    }
    if (id === undefined || !isVisible.value) return undefined;
    return follow();
  });
}

/** Calls `renew` after a request was settled, once per burst. */
export function useRenewal(renew: () => void): void {
  const seen = useSignal<{ readonly id: string | undefined; readonly count: number | undefined }>({
    id: lastRequest.peek()?.requestId,
    count: today.peek()?.requests,
  });
  useSignalEffect(() => {
    const now = { id: lastRequest.value?.requestId, count: today.value?.requests };
    const before = seen.peek();
    seen.value = now;
    // The first totals describe the data that was just loaded.
    const isFirst = before.count === undefined && now.id === before.id;
    if (isFirst || (now.id === before.id && now.count === before.count)) return undefined;
    const timer = setTimeout(renew, QUIET_MS);
    return () => clearTimeout(timer);
  });
}

/** Opens the stream. Returns a function that closes it. */
function follow(): () => void {
  let source: EventSource | undefined;
  let retry: ReturnType<typeof setTimeout> | undefined;
  const open = (): void => {
    liveState.value = 'connecting';
    source = new EventSource(`${BASE}/events`);
    source.addEventListener('open', () => (liveState.value = 'on'));
    source.addEventListener('error', () => {
      liveState.value = 'connecting';
      void untilReachable();
      // An error response, such as too many streams, closes the source permanently.
      if (source?.readyState === EventSource.CLOSED) retry = setTimeout(open, RETRY_MS);
    });
    receive(source, 'balance', balance);
    receive(source, 'usage', today);
    receive(source, 'request', lastRequest);
    receive(source, 'top_up', lastTopUp);
    source.addEventListener('end', (event) => {
      const { reason } = JSON.parse(event.data as string) as { reason: string }; // documented
      if (reason !== 'session') return;
      source?.close();
      leave(SESSION_ENDED);
    });
  };
  open();
  return () => {
    clearTimeout(retry);
    source?.close();
    liveState.value = 'off';
  };
}

function receive(source: EventSource, name: string, target: Signal): void {
  source.addEventListener(name, (event) => {
    target.value = JSON.parse(event.data as string); // documented by the route
  });
}
