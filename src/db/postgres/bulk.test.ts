import assert from 'node:assert/strict';
import { test } from 'node:test';
import { storeFixture } from '../../../test/databases/stores.ts';
import type { Statement } from '../db.ts';
import { Bulk } from './bulk.ts';

/** Every character with a meaning in an array literal. */
const TEXT = String.raw`"a" \b\, {c} (d), NULL 'é' 😀` + '\n';
const TABLE = 'CREATE TABLE bulk_row (id TEXT PRIMARY KEY, amount BIGINT NOT NULL, note TEXT)';
const INSERT = `INSERT INTO bulk_row (id, amount, note) VALUES ($1, $2, $3)
  ON CONFLICT (id) DO UPDATE SET amount = bulk_row.amount + excluded.amount`;
const UPDATE = 'UPDATE bulk_row SET amount = amount - $1 WHERE id = $2';
const DELETE = 'DELETE FROM bulk_row WHERE id = $1';

test('consecutive writes of different rows are one statement, whatever their number', () => {
  const bulk = new Bulk();
  const one = (id: string): Statement => ({ sql: INSERT, parameters: [id, 1n, null] });
  const update = (id: string): Statement => ({ sql: UPDATE, parameters: [1n, id] });
  const select = { sql: 'SELECT 1', parameters: [] };
  const other = { sql: 'DELETE FROM other_row WHERE id = $1', parameters: ['a'] };
  assert.equal(bulk.of([one('a'), one('b'), other]).length, 1);
  assert.equal(bulk.of([one('a'), select, one('b')]).length, 3);
  assert.equal(bulk.of([update('a'), update('b')]).length, 1);
  assert.equal(bulk.of([update('a'), update('b'), update('a')]).length, 2);
  assert.equal(bulk.of([one('a'), update('a')]).length, 2);
  assert.equal(bulk.of([one('a'), one('b')])[0]?.sql, bulk.of(['a', 'b', 'c'].map(one))[0]?.sql);
});

test('combined writes do what each of them would do alone, also of the same row', async () => {
  const fixture = storeFixture('postgres');
  const store = await fixture.open([{ id: 'bulk-0001', up: TABLE }]);
  const insert = (id: string, amount: bigint | number, note: string | null = null) => {
    return { sql: INSERT, parameters: [id, amount, note] };
  };
  await store.run([insert(TEXT, 1n, TEXT), insert('b', 2), insert('c', 3n, '')]);
  await store.run([insert('b', 10), insert('d', 4)]);
  await store.run([
    insert('e', 5n),
    { sql: UPDATE, parameters: [1n, 'b'] },
    { sql: UPDATE, parameters: [2, TEXT] },
    { sql: UPDATE, parameters: [3, 'b'] },
    { sql: DELETE, parameters: ['c'] },
    { sql: DELETE, parameters: ['none'] },
  ]);
  const rows = await store.query('SELECT id, amount, note FROM bulk_row ORDER BY amount');
  assert.deepEqual(
    rows.map(({ id, amount, note }) => [id, amount, note]),
    [
      [TEXT, -1n, TEXT],
      ['d', 4n, null],
      ['e', 5n, null],
      ['b', 8n, null],
    ],
  );
  const broken = [insert('f', 6n), { sql: UPDATE, parameters: ['no number', 'b'] }];
  await assert.rejects(store.run(broken), /invalid input syntax/);
  assert.equal((await store.query("SELECT 1 FROM bulk_row WHERE id = 'f'")).length, 0);
});
