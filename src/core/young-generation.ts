/**
 * Keeps the garbage collector from making room for a load that is none.
 *
 * Nearly everything that is made while the program starts lives as long as it does: code, schemas,
 * routes. V8 takes that for load and doubles its young generation until it has 32 MB, which an idle
 * server would keep for good. What is made here goes to the old generation instead.
 */
import { setFlagsFromString } from 'node:v8';

const USUAL_GROWTH_FACTOR = 2;

/** Runs `work`, whose results stay; afterwards the young generation grows as load asks for. */
export async function makeLasting<T>(work: () => Promise<T>): Promise<T> {
  setFlagsFromString('--semi-space-growth-factor=1');
  try {
    return await work();
  } finally {
    setFlagsFromString(`--semi-space-growth-factor=${USUAL_GROWTH_FACTOR}`);
  }
}
