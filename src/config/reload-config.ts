/**
 * Loads the configuration on another thread. Parsing a catalogue of thousands of models takes
 * seconds; a running server must not stand still for it.
 */
import { Worker } from 'node:worker_threads';

import { siblingUrl } from '../core/sibling.ts';
import type { LoadedConfig } from './settings.ts';
import type { Environment } from './yaml-source.ts';

export interface ReloadInputs {
  readonly env: Environment;
  readonly cwd: string;
}

/** As `loadConfig` from the file system, without holding up the event loop. */
export async function reloadConfig(inputs: ReloadInputs): Promise<LoadedConfig> {
  const entry = siblingUrl(import.meta.url, 'load-worker');
  const worker = new Worker(entry, { workerData: inputs, env: {} });
  try {
    return await new Promise<LoadedConfig>((resolve, reject) => {
      worker.once('message', resolve);
      worker.once('error', reject);
      worker.once('exit', () => reject(new Error('The worker ended without an outcome')));
    });
  } catch (error) {
    // Out of memory or threads: the old configuration goes on and the operator reads why.
    const reason = error instanceof Error ? error.message : String(error);
    const problem = { file: 'configuration', path: '', message: `Could not be loaded: ${reason}` };
    return { ok: false, problems: [problem], sources: [] };
  } finally {
    await worker.terminate();
  }
}
