/** Starts anvil, an Ethereum node for tests, from its prebuilt binary on a free port. */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { endWithUs } from '../support/end-with-us.ts';

export interface Anvil {
  readonly url: string;
  /** Kills the process, as a crash would. */
  readonly kill: () => Promise<void>;
}

/** Path of the binary for this platform. */
function anvilPath(): string {
  const cpu = process.arch === 'x64' ? 'amd64' : process.arch;
  const folder = join(
    import.meta.dirname,
    '../../node_modules/@foundry-rs',
    `anvil-${process.platform}-${cpu}`,
  );
  const path = join(folder, 'bin', process.platform === 'win32' ? 'anvil.exe' : 'anvil');
  if (!existsSync(path))
    throw new Error(`anvil is not installed for ${process.platform} ${process.arch}`);
  return path;
}

export async function startAnvil(chainId: number): Promise<Anvil> {
  const options = ['--port', '0', '--chain-id', String(chainId), '--accounts', '3'];
  const child = endWithUs(spawn(anvilPath(), options, { stdio: ['ignore', 'pipe', 'ignore'] }));
  const exited = once(child, 'exit');
  for await (const line of createInterface({ input: child.stdout })) {
    const port = /^Listening on 127\.0\.0\.1:(\d+)/.exec(line)?.[1];
    if (port === undefined) continue;
    child.stdout.resume();
    return {
      url: `http://127.0.0.1:${port}`,
      kill: async () => {
        child.kill('SIGKILL');
        await exited;
      },
    };
  }
  throw new Error('anvil ended before it listened');
}
