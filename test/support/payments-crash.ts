/** For tests: runs a process of payments until it kills itself at a step. */
import { spawn } from 'node:child_process';
import type { FixtureOptions } from './payments.ts';
import { endWithUs } from './end-with-us.ts';

export interface CrashOrder {
  readonly folder: string;
  readonly settings: FixtureOptions['settings'];
  /** The payment that it takes; without one it sweeps. */
  readonly header?: string;
  /** Nano-USD that a request wants of it; without, it is a top-up. */
  readonly wanted?: string;
  readonly dieAt: string;
}

/** The signal that ended it: `SIGKILL` when the step came. */
export async function killedAt(order: CrashOrder): Promise<NodeJS.Signals | null> {
  const file = new URL('payments-crash-child.ts', import.meta.url).pathname;
  const child = endWithUs(
    spawn(process.execPath, [file, JSON.stringify(order)], {
      stdio: ['ignore', 'ignore', 'inherit'],
    }),
  );
  return await new Promise((resolve) => {
    child.once('exit', (_code, signal) => resolve(signal));
  });
}
