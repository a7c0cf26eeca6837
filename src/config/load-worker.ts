/** Worker thread of `watch-config.ts`: loads the configuration once and posts the outcome. */
import { parentPort, workerData } from 'node:worker_threads';

import { loadConfig } from './config.ts';
import type { ConfigInputs } from './sections.ts';

const inputs = workerData as ConfigInputs; // written by watch-config.ts alone
// oxlint-disable-next-line unicorn/require-post-message-target-origin -- a thread, not a window
parentPort?.postMessage(await loadConfig(inputs));
