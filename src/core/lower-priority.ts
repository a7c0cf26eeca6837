/** Lets a child process compute without slowing down the server. */
import { constants, setPriority } from 'node:os';

/**
 * Lowers the priority of a child process that was just started: on Linux only threads that start
 * later inherit it.
 */
export function lowerPriority({ pid }: { readonly pid?: number | undefined }): void {
  if (pid === undefined) return;
  try {
    setPriority(pid, constants.priority.PRIORITY_BELOW_NORMAL);
  } catch {
    // The process has ended, or the system allows no change: it runs with the default priority.
  }
}
