/**
 * One process of a test run: `node test/run-files.ts <list> <folder>`. Takes the next file of the
 * list, runs it as a suite, and continues until the list is empty or the process uses too much
 * memory. Processes of a run share the list; a file in the folder marks the ones that are taken.
 * Hooks outside of suites end with their file.
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

// Keeps the process alive between two files, independent of what they left open.
await test('files', { timeout: Infinity }, async () => {
  for (const [number, file] of files.entries()) {
    if (!take(number)) continue;
    await suite(file, { timeout: TIMEOUT_MS }, async () => {
      await import(pathToFileURL(file).href);
    });
    if (process.memoryUsage.rss() > MAX_RESIDENT_BYTES) return;
  }
});

/** Returns true if this process was the first to take the file. */
function take(number: number): boolean {
  try {
    writeFileSync(join(taken, String(number)), String(process.pid), { flag: 'wx' });
    return true;
  } catch (error) {
    if (error instanceof Error && 'code' in error && error.code === 'EEXIST') return false;
    throw error;
  }
}
