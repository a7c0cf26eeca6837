/** Worker thread of `reload-config.ts`: loads the configuration once and posts the outcome. */
import { parentPort, workerData } from 'node:worker_threads';

import { loadConfig } from './config.ts';
import type { ReloadInputs } from './reload-config.ts';

const inputs = workerData as ReloadInputs; // written by reload-config.ts alone
// oxlint-disable-next-line unicorn/require-post-message-target-origin -- a thread, not a window
parentPort?.postMessage(await loadConfig(inputs));
