/**
 * How long work holds the event loop, in computing time of this thread: on a crowded machine a
 * loop also waits for its turn, which says nothing about the work.
 */

export interface Held<T> {
  readonly result: T;
  /** The longest stretch that the thread computed without coming back to its timers. */
  readonly heldMs: number;
}

export async function heldLoop<T>(work: () => Promise<T>): Promise<Held<T>> {
  let heldUs = 0;
  let last = process.threadCpuUsage();
  const look = (): void => {
    const { user, system } = process.threadCpuUsage(last);
    heldUs = Math.max(heldUs, user + system);
    last = process.threadCpuUsage();
  };
  const timer = setInterval(look, 1);
  try {
    const result = await work();
    look();
    return { result, heldMs: heldUs / 1_000 };
  } finally {
    clearInterval(timer);
  }
}
