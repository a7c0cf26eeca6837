/**
 * Whether the server responds, and whether it still serves the build that this tab runs. A page
 * whose code cannot be loaded waits here until the server is back.
 */
import { signal } from '@preact/signals';

/** `false` from the first failed call until the server responds again. */
export const isReachable = signal(true);
/** The server serves a newer build than this tab runs. */
export const isOutdated = signal(false);

const RETRY_MS = 1_000;
/** Less than two seconds, so that the offline bar appears within that time. */
const LIMIT_MS = 1_500;
/** Shortest time between two automatic reloads of one tab: a broken build must not reload forever. */
const RELOAD_PAUSE_MS = 10_000;
const RELOADED_AT = 'reloaded-at-ms';

/** The entry script of this build; its name has a hash of the contents. */
const SCRIPT = document.querySelector('script[type=module]')?.getAttribute('src') ?? '';

let running: Promise<void> | undefined;

/** Resolves once the server responds. Concurrent calls share one check. */
export function untilReachable(): Promise<void> {
  running ??= check().finally(() => {
    running = undefined;
  });
  return running;
}

async function check(): Promise<void> {
  for (;;) {
    const page = await readDocument();
    isReachable.value = page !== undefined;
    if (page !== undefined) {
      isOutdated.value ||= !page.includes(SCRIPT);
      return;
    }
    await pause(RETRY_MS);
  }
}

/** The document of the console as the server has it now; `undefined` if the server does not respond. */
async function readDocument(): Promise<string | undefined> {
  try {
    const signal = AbortSignal.timeout(LIMIT_MS);
    const response = await fetch('/console', { cache: 'no-store', signal });
    return response.ok ? await response.text() : undefined;
  } catch {
    // No connection, or none in time.
    return undefined;
  }
}

/** Loads the code of a page. A failed load is repeated as soon as the server responds. */
export async function loadPage<T>(load: () => Promise<T>): Promise<T> {
  try {
    return await load();
  } catch {
    // The server does not respond, or serves a newer build.
    await untilReachable();
  }
  try {
    if (!isOutdated.value) return await load();
  } catch {
    // Some browsers remember a failed import: only a new document repeats it.
  }
  await reload();
  return await new Promise<never>(() => undefined);
}

async function reload(): Promise<void> {
  const sinceMs = Date.now() - Number(sessionStorage.getItem(RELOADED_AT) ?? 0);
  if (sinceMs < RELOAD_PAUSE_MS) await pause(RELOAD_PAUSE_MS - sinceMs);
  sessionStorage.setItem(RELOADED_AT, String(Date.now()));
  location.reload();
}

function pause(durationMs: number): Promise<void> {
  return new Promise((resolve) => {
    setTimeout(resolve, durationMs);
  });
}
