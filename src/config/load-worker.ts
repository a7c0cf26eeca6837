/** Worker thread of `watch-config.ts`: loads the configuration once and posts the result. */
import { parentPort, workerData } from 'node:worker_threads';

import { loadConfig } from './config.ts';
import type { ConfigInputs } from './sections.ts';

const inputs = workerData as ConfigInputs; // set by watch-config.ts
// oxlint-disable-next-line unicorn/require-post-message-target-origin -- a worker thread, not a window
parentPort?.postMessage(await loadConfig(inputs));
