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

test('writes that follow each other are one statement, whatever their number', () => {
  const bulk = new Bulk();
  const one = (id: string): Statement => ({ sql: INSERT, parameters: [id, 1n, null] });
  const deleted = { sql: DELETE, parameters: ['c'] };
  const word = { sql: 'SELECT 1', parameters: [] };
  assert.equal(bulk.of([one('a'), one('b'), deleted]).length, 1);
  assert.equal(bulk.of([one('a'), word, one('b')]).length, 3);
  assert.equal(bulk.of([one('a'), one('b')])[0]?.sql, bulk.of(['a', 'b', 'c'].map(one))[0]?.sql);
});

test('they do what each of them would do', async () => {
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
      ['b', 11n, null],
    ],
  );
  const broken = [insert('f', 6n), { sql: UPDATE, parameters: ['no number', 'b'] }];
  await assert.rejects(store.run(broken), /invalid input syntax/);
  assert.equal((await store.query("SELECT 1 FROM bulk_row WHERE id = 'f'")).length, 0);
});
