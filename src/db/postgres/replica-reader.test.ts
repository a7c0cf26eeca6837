import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { Queryable, Store } from '../contract.ts';
import { ReadTooLong, StoreUnavailable } from '../failures.ts';
import { ReplicaReader } from './replica-reader.ts';

/** A server that returns its name, or behaves as `state` defines. */
function server(name: string, state: { down?: string; error?: Error } = {}) {
  const reads = { times: 0 };
  const query = async (): Promise<readonly never[]> => {
    reads.times += 1;
    if (state.error !== undefined) throw state.error;
    return [name] as unknown as readonly never[]; // the test reads it as it is
  };
  const unavailable = () => state.down;
  const run = async (): Promise<void> => undefined;
  const reader = { query, run } as unknown as Queryable; // it returns the same for each query
  const store = { readerFor: () => reader, unavailable } as unknown as Store; // the methods in use
  return { reads, state, store };
}

test('reads go to the replicas in turn, skip failing ones, and use the primary last', async () => {
  const primary = server('primary');
  const [one, two] = [server('one'), server('two')];
  const reader = new ReplicaReader(primary.store, [one.store, two.store]);
  const read = async () => [...(await reader.of('').query<unknown>('SELECT 1'))][0];
  assert.deepEqual(new Set([await read(), await read()]), new Set(['one', 'two']));
  one.state.down = 'away';
  assert.deepEqual([await read(), await read()], ['two', 'two']);
  two.state.error = new StoreUnavailable('lost on the way');
  assert.equal(await read(), 'primary');
  // A read that is too long for a replica is not repeated on the primary.
  two.state.error = new ReadTooLong(1);
  await assert.rejects(read(), ReadTooLong);
  two.state.error = new TypeError('a bug of ours');
  await assert.rejects(read(), TypeError);
});
