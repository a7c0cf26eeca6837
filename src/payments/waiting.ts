/** Waiting within a bound: what is late goes on by itself. */
import type { Clock } from '../core/clock.ts';

/** Whether `work` has ended, well or not, before `ms` are over; nothing is left that holds a process. */
export async function endsWithin(
  clock: Clock,
  ms: number,
  work: Promise<unknown>,
): Promise<boolean> {
  return await new Promise((resolve) => {
    const cancel = clock.after(ms, () => resolve(false));
    const ended = (): void => {
      cancel();
      resolve(true);
    };
    work.then(ended, ended);
  });
}
