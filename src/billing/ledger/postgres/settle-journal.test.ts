import assert from 'node:assert/strict';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { type FileHandle, open } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, test } from 'node:test';
import { nano } from '../../../core/money.ts';
import { NO_TOKENS } from '../ledger.ts';
import { SettleJournal } from './settle-journal.ts';
import type { RowSettle } from '../settle.ts';

const folder = mkdtempSync(join(tmpdir(), 'settle-journal-'));
after(() => rmSync(folder, { recursive: true }));

function settleOf(requestId: string): RowSettle {
  const usage = {
    requestId,
    accountId: 'a',
    keyId: 'k',
    kind: 'chat',
    modelId: 'm',
    attempts: 1,
    tokens: NO_TOKENS,
    countedBy: 'engine',
    priceVersion: 'p',
    latencyMs: 1,
    status: 'completed',
    createdMs: 1,
  } as const;
  return {
    request: { usage, costNano: nano(1n) },
    lease: { id: 'lease:1', usdNano: 1n, dailyNano: 0n, reservedNano: 1n },
  };
}

test('an entry added during a replay is on disk when `add` resolves', async () => {
  const journal = new SettleJournal(folder, 'one');
  await journal.open();
  for (let round = 0; round < 300; round += 1) {
    await journal.add(settleOf(`first-${round}`));
    const replayed = journal.replay(async () => {});
    // Adds with varying delays, so that some entries arrive between the read and the truncation.
    for (let turn = 0; turn < round % 12; turn += 1) await Promise.resolve();
    await journal.add(settleOf(`second-${round}`));
    const isWaiting = journal.size > 0;
    const text = readFileSync(join(folder, 'settles-1.journal'), 'utf8');
    if (isWaiting) assert.match(text, new RegExp(`second-${round}"`));
    await replayed;
    await journal.replay(async () => {});
  }
  await journal.close();
});

const FULL = Object.assign(new Error('no space left on device'), { code: 'ENOSPC' });

for (const step of ['appendFile', 'datasync'] as const) {
  test(`an entry whose ${step} fails is not settled, and the next one is kept`, async (t) => {
    const path = mkdtempSync(join(folder, 'full-'));
    const probe = await open(join(path, 'probe'), 'w');
    const files = Object.getPrototypeOf(probe) as FileHandle;
    await probe.close();
    const fail = async function (this: FileHandle, text?: string): Promise<never> {
      if (text !== undefined) await this.write(text.slice(0, text.length / 2));
      throw FULL;
    };
    const journal = new SettleJournal(path, 'one');
    await journal.open();
    t.mock.method(files, step, fail, { times: 1 });
    await assert.rejects(journal.add(settleOf('lost')), FULL);
    assert.equal(journal.size, 0);
    await journal.add(settleOf('kept'));
    await journal.close();
    const next = new SettleJournal(path, 'two');
    await next.open();
    const settled: string[] = [];
    await next.replay(async ({ request }) => void settled.push(request.usage.requestId));
    assert.deepEqual(settled, ['kept']);
    await next.close();
  });
}

test('`ended` names the process that left the journal file', async () => {
  const owner = join(folder, 'settles-1.process');
  const ended = async (processId: string): Promise<readonly string[]> => {
    const journal = new SettleJournal(folder, processId);
    await journal.open();
    await journal.close();
    return journal.ended;
  };
  const living = new SettleJournal(folder, 'living');
  await living.open();
  // The file of the running process is locked, so the next process uses another one.
  assert.deepEqual(await ended('beside'), []);
  const left = readFileSync(owner, 'utf8');
  await living.close();
  assert.deepEqual(await ended('after an end in order'), []);
  writeFileSync(owner, left);
  const adopting = new SettleJournal(folder, 'adopting');
  assert.deepEqual(await ended('heir'), ['living']);
  assert.deepEqual(await ended('once'), []);
  writeFileSync(owner, `another-machine ${left.split(' ')[1]}`);
  assert.deepEqual(await ended('of a copied folder'), []);
  // The file of a killed process without a successor is found by any other process.
  await adopting.open();
  writeFileSync(join(folder, 'settles-2.process'), left);
  writeFileSync(join(folder, 'settles-2.journal'), '');
  await adopting.adopt(async () => undefined);
  assert.deepEqual(adopting.ended, ['living']);
  await adopting.close();
});
