import assert from 'node:assert/strict';
import { mkdtempSync, rmSync } from 'node:fs';
import fs from 'node:fs/promises';
import { syncBuiltinESMExports } from 'node:module';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import type { Guard } from '../net/guard.ts';
import { MediaFiles } from './media-files.ts';

const UNUSED = undefined as unknown as Guard; // nothing is fetched

test('the bytes of a request are free again although its folder could not be deleted', async (t) => {
  const folder = mkdtempSync(join(tmpdir(), 'farebox-media-'));
  t.after(() => {
    t.mock.restoreAll();
    syncBuiltinESMExports();
    rmSync(folder, { recursive: true, force: true });
  });
  const bytes = Buffer.alloc(100);
  const files = new MediaFiles({
    guard: UNUSED,
    folder: async () => folder,
    timeoutMs: 1_000,
    // The least that a request counts.
    maxBytes: 16_000_000,
    maxCallerBytes: 16_000_000,
    stored: async () => ({ callerBytes: 0, allBytes: 0 }),
  });
  const failure = new Error('ENOTEMPTY');
  t.mock.method(fs, 'rm').mock.mockImplementationOnce(() => Promise.reject(failure));
  syncBuiltinESMExports();
  const store = () => files.within('ada', (workspace) => workspace.write(bytes));
  await assert.rejects(store(), failure);
  assert.equal((await store()).sizeBytes, bytes.length);
});
