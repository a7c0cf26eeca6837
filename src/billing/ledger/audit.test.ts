import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { storeFixture } from '../../../test/databases/stores.ts';
import { ZERO } from '../../core/money.ts';
import { runAudit } from './audit.ts';
import { LEDGER_MIGRATIONS } from './ledger.ts';

const ACCOUNTS = 20_000;
/** Comparing each account with each other one takes minutes; the audit takes 0.2 s. */
const MAX_CPU_MS = 10_000;

describe('the audit of many accounts', () => {
  const fixture = storeFixture('sqlite');

  test('compares the sums of each account once', async () => {
    const store = await fixture.open(LEDGER_MIGRATIONS);
    const numbers =
      'WITH RECURSIVE numbers(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM numbers WHERE i < $1)';
    await store.query(
      `INSERT INTO ledger_usage_day (account_id, day, key_id, model_id, engine, requests, errors,
         prompt_tokens, completion_tokens, usd_nano, diem_nano)
       ${numbers} SELECT 'acct_' || i, 1, '', '', '', 1, 0, 0, 0, 5, 0 FROM numbers`,
      [ACCOUNTS],
    );
    await store.query(
      `INSERT INTO ledger_carry (account_id, transfers, credited_nano, debited_nano, charged_nano, used_nano)
       ${numbers} SELECT 'acct_' || i, 1, 0, 0, 5, CASE WHEN i = $1 THEN 4 ELSE 5 END FROM numbers`,
      [ACCOUNTS],
    );
    const before = process.cpuUsage();
    const { differences } = await runAudit(store, { count: 0, amountNano: ZERO });
    const { user, system } = process.cpuUsage(before);
    const id = `acct_${ACCOUNTS}`;
    assert.deepEqual(
      differences.map(({ accountId, storedNano, recomputedNano }) => [
        accountId,
        storedNano,
        recomputedNano,
      ]),
      [
        [id, 4n, 5n],
        [id, 5n, 4n],
      ],
    );
    assert.ok((user + system) / 1_000 < MAX_CPU_MS);
  });
});
