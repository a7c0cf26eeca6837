/**
 * One process of a run: `node test/run-files.ts <list> <folder>`. Takes the next file of the list,
 * runs it as a suite, and so on until none is left or it has become large: what it starts then takes
 * longer to start than another process. The processes of a run share the list and the folder in which
 * a file of a number says who has taken it, so that none waits for another.
 *
 * What a file sets up outside of its suites ends with the file.
 */
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { scopeTests } from './support/test-scopes.ts';

/** Timeout of one file, several times the longest. The report names a test that is running then. */
const TIMEOUT_MS = 240_000;
/** Memory limit of this process, because starting another one copies its page table. */
const MAX_RESIDENT_BYTES = 700_000_000;

scopeTests();
const { suite, test } = await import('node:test');
const [list = '', taken = ''] = process.argv.slice(2);
const files = readFileSync(list, 'utf8').split('\n').filter(Boolean);

// While this test runs the process does not end between two files, and afterwards whatever they left.
await test('files', { timeout: Infinity }, async () => {
  for (const [number, file] of files.entries()) {
    if (!take(number)) continue;
    await suite(file, { timeout: TIMEOUT_MS }, async () => {
      await import(pathToFileURL(file).href);
    });
    if (process.memoryUsage.rss() > MAX_RESIDENT_BYTES) return;
  }
});

/** Whether no other process has taken it. */
function take(number: number): boolean {
  try {
    writeFileSync(join(taken, String(number)), String(process.pid), { flag: 'wx' });
    return true;
  } catch (error) {
    if (error instanceof Error && 'code' in error && error.code === 'EEXIST') return false;
    throw error;
  }
}
