/**
 * What the server tells while a page is open: the balance, the totals of today, settled requests and
 * top-ups. One stream for all pages; it stops while nobody looks and while nobody is signed in.
 */
import { type Signal, effect, signal } from '@preact/signals';
import { BASE } from './page-facts.ts';
import { untilReachable } from './server-state.ts';
import { leave, session } from './session.ts';
import type { Balance, Receipt, Sums, TopUp } from './shapes.ts';

export type LiveState = 'off' | 'connecting' | 'on';

export const liveState = signal<LiveState>('off');
export const balance = signal<Balance | undefined>(undefined);
/** Totals of the UTC day. */
export const today = signal<Sums | undefined>(undefined);
export const lastRequest = signal<Receipt | undefined>(undefined);
export const lastTopUp = signal<TopUp | undefined>(undefined);

const RETRY_MS = 5_000;

/** Follows the session for as long as the program runs. */
export function startLive(): void {
  const isSeen = signal(!document.hidden);
  document.addEventListener('visibilitychange', () => {
    isSeen.value = !document.hidden;
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
    if (id === undefined || !isSeen.value) return undefined;
    return follow();
  });
}

/** Opens the stream; the answer ends it. */
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
      // A refusal closes it for good, such as too many streams.
      if (source?.readyState === EventSource.CLOSED) retry = setTimeout(open, RETRY_MS);
    });
    hear(source, 'balance', balance);
    hear(source, 'usage', today);
    hear(source, 'request', lastRequest);
    hear(source, 'top_up', lastTopUp);
    source.addEventListener('end', (event) => {
      const { reason } = JSON.parse(event.data as string) as { reason: string }; // ours
      if (reason !== 'session') return;
      source?.close();
      leave('Your session has ended. Sign in again to go on.');
    });
  };
  open();
  return () => {
    clearTimeout(retry);
    source?.close();
    liveState.value = 'off';
  };
}

function hear(source: EventSource, name: string, target: Signal): void {
  source.addEventListener(name, (event) => {
    target.value = JSON.parse(event.data as string); // as the route promises
  });
}
