import assert from 'node:assert/strict';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, test } from 'node:test';
import { nano } from '../../../core/money.ts';
import { NO_TOKENS } from '../ledger.ts';
import { SettleJournal } from './settle-journal.ts';
import type { LeaseSettle } from './settle-statement.ts';

const folder = mkdtempSync(join(tmpdir(), 'settle-journal-'));
after(() => rmSync(folder, { recursive: true }));

function settleOf(requestId: string): LeaseSettle {
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
    leaseId: 'lease:1',
    allowanceId: undefined,
    budgetIds: undefined,
    isLast: false,
    usdNano: 1n,
    dailyNano: 0n,
    reservedNano: 1n,
  };
}

test('what comes while the journal is emptied is on the disk when its caller hears of it', async () => {
  const journal = new SettleJournal(folder);
  await journal.open();
  for (let round = 0; round < 300; round += 1) {
    await journal.add(settleOf(`first-${round}`));
    const replayed = journal.replay(async () => {});
    // Each round a little later, so that some come between the look and the emptying.
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
