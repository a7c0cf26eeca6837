/** Worker thread of `price-lists.ts`: parses a price list. */
import { workerData } from 'node:worker_threads';
import { readPriceList } from '../config/config.ts';
import { postResult } from '../core/worker-result.ts';

postResult(() => readPriceList(String(workerData)));
