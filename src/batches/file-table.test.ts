import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { storeFixture } from '../../test/databases/stores.ts';
import { HOUR_MS, MINUTE_MS } from '../core/clock.ts';
import { FileTable } from './file-table.ts';
import { BATCHES_MIGRATIONS } from './migrations.ts';

const UNLIMITED = { maxFiles: 1, maxCallerBytes: 1, maxBytes: 1 };

async function begun(
  files: FileTable,
  id: string,
  times: { readonly createdMs: number; readonly expiresMs: number },
) {
  const file = { id, accountId: 'a', name: 'n', purpose: 'batch', sizeBytes: 1 };
  const nothing = { callerBytes: 0, allBytes: 0 };
  await files.begin({ ...file, contentId: id, part: 0, ...times }, UNLIMITED, nothing);
  return file;
}

/** Only processes that share a database have different clocks and concurrent transactions. */
describe('files of several processes', () => {
  const fixture = storeFixture('postgres');

  test('a process whose clock is ahead neither hides nor deletes a file early', async () => {
    const files = new FileTable(await fixture.open(BATCHES_MIGRATIONS));
    const createdMs = Date.now();
    const expiresMs = createdMs + 10 * MINUTE_MS;
    const file = await begun(files, 'f', { createdMs, expiresMs });
    await files.finish('f', { ...file, expiresMs }, createdMs);
    const aheadMs = createdMs + HOUR_MS;
    assert.deepEqual(await files.expired(aheadMs), []);
    assert.equal((await files.find('a', 'f', aheadMs))?.id, 'f');
  });

  test('concurrent uploads of several accounts do not exceed the storage of the server', async () => {
    const files = new FileTable(await fixture.open(BATCHES_MIGRATIONS));
    const limits = { maxFiles: 10, maxCallerBytes: 100, maxBytes: 100 };
    const begun = await Promise.all(
      Array.from({ length: 5 }, (_, at) => {
        const id = `file-${at}`;
        const file = { id, contentId: id, accountId: id, part: 0, name: '', purpose: 'batch' };
        const times = { createdMs: 0, expiresMs: 1 };
        const beside = { callerBytes: 0, allBytes: 0 };
        return files.begin({ ...file, ...times, sizeBytes: 60 }, limits, beside);
      }),
    );
    assert.deepEqual(
      begun.filter((one) => one !== 'all'),
      [undefined],
    );
  });

  test('a process whose clock is behind stores no expired file', async () => {
    const files = new FileTable(await fixture.open(BATCHES_MIGRATIONS));
    const createdMs = Date.now() - HOUR_MS;
    const expiresMs = createdMs + 10 * MINUTE_MS;
    const file = await begun(files, 'g', { createdMs, expiresMs });
    assert.deepEqual(await files.expired(Date.now()), []);
    assert.equal(await files.finish('g', { ...file, expiresMs }, createdMs), true);
    assert.equal((await files.find('a', 'g', Date.now()))?.id, 'g');
  });
});
