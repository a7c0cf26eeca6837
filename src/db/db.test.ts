import assert from 'node:assert/strict';
import { test } from 'node:test';
import { onEachStore } from '../../test/databases/stores.ts';
import type { Migration } from './db.ts';
import { isUniqueViolation } from './db.ts';

const MIGRATIONS: readonly Migration[] = [
  {
    id: 'sample-0001',
    up: 'CREATE TABLE sample_row (id TEXT PRIMARY KEY, amount BIGINT NOT NULL, body BYTEA);\nCREATE INDEX sample_amount ON sample_row (amount);\n',
  },
];

onEachStore('store', (fixture) => {
  test('integers are read as bigint and bytes as Buffer', async () => {
    const store = await fixture.open(MIGRATIONS);
    await store.query('INSERT INTO sample_row (id, amount, body) VALUES ($1, $2, $3)', [
      'a',
      9_000_000_000_000_000_001n,
      Buffer.from([1, 2, 255]),
    ]);
    const rows = await store.query('SELECT id, amount, body FROM sample_row');
    assert.deepEqual(
      { ...rows[0] },
      { id: 'a', amount: 9_000_000_000_000_000_001n, body: Buffer.from([1, 2, 255]) },
    );
    const sums = await store.query<{ total: bigint }>(
      'SELECT sum(amount) AS total FROM sample_row',
    );
    assert.equal(sums[0]?.total, 9_000_000_000_000_000_001n);
  });

  test('a transaction that throws is rolled back alone', async () => {
    const store = await fixture.open(MIGRATIONS);
    const insert = (id: string, fail: boolean): Promise<void> =>
      store.transaction(async (tx) => {
        await tx.query('INSERT INTO sample_row (id, amount) VALUES ($1, 1)', [id]);
        if (fail) throw new Error(`refused ${id}`);
      });
    const answers = await Promise.allSettled([
      insert('a', false),
      insert('b', true),
      insert('c', false),
    ]);
    assert.deepEqual(
      answers.map((answer) => answer.status),
      ['fulfilled', 'rejected', 'fulfilled'],
    );
    const rows = await store.query<{ id: string }>('SELECT id FROM sample_row ORDER BY id');
    assert.deepEqual(
      rows.map((row) => row.id),
      ['a', 'c'],
    );
  });

  test('`isUniqueViolation` recognizes a unique violation', async () => {
    const store = await fixture.open(MIGRATIONS);
    const insert = (): Promise<unknown> =>
      store.query('INSERT INTO sample_row (id, amount) VALUES ($1, 1)', ['same']);
    await insert();
    await assert.rejects(insert, (error) => isUniqueViolation(error));
  });

  test('concurrent increments are all counted', async () => {
    const store = await fixture.open(MIGRATIONS);
    await store.query('INSERT INTO sample_row (id, amount) VALUES ($1, 0)', ['counter']);
    await Promise.all(
      Array.from({ length: 50 }, () =>
        store.transaction((tx) =>
          tx.query('UPDATE sample_row SET amount = amount + 1 WHERE id = $1', ['counter']),
        ),
      ),
    );
    const rows = await store.query<{ amount: bigint }>('SELECT amount FROM sample_row');
    assert.equal(rows[0]?.amount, 50n);
  });

  test('`migrate` rejects a database of a newer version with a message', async () => {
    const url = await fixture.freshUrl();
    await fixture.open(
      [...MIGRATIONS, { id: 'sample-9999', up: 'CREATE TABLE later (id TEXT)' }],
      url,
    );
    await assert.rejects(
      fixture.open(MIGRATIONS, url),
      /A newer version of Farebox has changed the database \(unknown migrations: sample-9999\)/,
    );
  });

  test('two processes that migrate concurrently produce one schema', async () => {
    const url = await fixture.freshUrl();
    const stores = await Promise.all([
      fixture.open(MIGRATIONS, url),
      fixture.open(MIGRATIONS, url),
    ]);
    for (const store of stores) await store.query('SELECT id FROM sample_row');
    await stores[0]?.migrate(MIGRATIONS);
  });
});
