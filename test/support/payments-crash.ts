/** For tests: runs a process of payments until it kills itself at a step. */
import { spawn } from 'node:child_process';
import type { FixtureOptions } from './payments.ts';
import { endWithUs } from './end-with-us.ts';

export interface CrashOrder {
  readonly folder: string;
  readonly settings: FixtureOptions['settings'];
  /** Header of the payment; without it the process runs the sweep. */
  readonly header?: string;
  /** Nano-USD that the request costs; without it the payment is a top-up. */
  readonly wanted?: string;
  readonly dieAt: string;
}

/** Signal that ended the process: `SIGKILL` if the step came. */
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
