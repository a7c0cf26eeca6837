/** Worker thread of `watch-config.ts`: loads the configuration once and posts the result. */
import { workerData } from 'node:worker_threads';

import { postResult } from '../core/worker-result.ts';
import { loadConfig } from './config.ts';
import type { ConfigInputs } from './sections.ts';

const inputs = workerData as ConfigInputs; // set by watch-config.ts
postResult(() => loadConfig(inputs));
