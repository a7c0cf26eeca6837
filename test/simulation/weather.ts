/** State of the network and the disks of a world, which faults change. */

export interface Weather {
  /** A message takes at most so long. */
  delayMs: number;
  /** One write in so many cuts its connection; 0 for none. */
  cutOnce: number;
  /** Separates a machine from these others, or from all. */
  parted:
    | { readonly from: string; readonly to?: readonly string[]; readonly untilMs: number }
    | undefined;
  /** A flush takes at most so long. */
  flushMs: number;
  failsFlush: boolean;
  /** Whether nothing can be written. */
  isFull: boolean;
}

export const FAIR: Readonly<Weather> = {
  delayMs: 2,
  cutOnce: 0,
  parted: undefined,
  flushMs: 1,
  failsFlush: false,
  isFull: false,
};
