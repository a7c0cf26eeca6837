/** The used heap after a garbage collection, to measure what a part of the program keeps. */
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';

setFlagsFromString('--expose-gc');
const collectGarbage = runInNewContext('gc') as () => void; // exposed by the flag

export function heapBytes(): number {
  collectGarbage();
  return process.memoryUsage().heapUsed;
}
