/** Stored turns on both databases: chains, limits, retention and storage. */
import assert from 'node:assert/strict';
import { before, test } from 'node:test';
import { DAY_MS, HOUR_MS, MINUTE_MS } from '../../core/clock.ts';
import type { Store } from '../../db/db.ts';
import { onEachStore } from '../../../test/databases/stores.ts';
import { TestClock } from '../../../test/support/test-clock.ts';
import { holdsNoLoop } from '../../../test/app/held-loop.ts';
import { systemIds } from '../../core/ids.ts';
import { Sealer } from '../agents/sealed-text.ts';
import { RESPONSES_MIGRATIONS } from './migrations.ts';
import { type NewTurn, StoredTurns } from './stored-turns.ts';
import { readTurn } from './turn.ts';

onEachStore('stored turns', (fixture) => {
  let store: Store;
  let clock: TestClock;
  let turns: StoredTurns;
  let keepHours = 24;

  before(async () => {
    store = await fixture.open(RESPONSES_MIGRATIONS);
    clock = new TestClock();
    turns = new StoredTurns({ store, clock, keepHours: () => keepHours });
  });

  const add = (id: string, parentId?: string, more: Partial<NewTurn> = {}) =>
    store.transaction((tx) =>
      turns.add(tx, {
        id,
        accountId: 'a',
        parentId,
        createdMs: clock.nowMs(),
        model: 'm',
        status: 'completed',
        costNano: 7n,
        inputJson: JSON.stringify([{ role: 'user', content: id }]),
        responseJson: JSON.stringify({ id, output: [] }),
        ...more,
      }),
    );
  /** As if time had passed, on both databases. */
  const later = (ms: number) =>
    store.query('UPDATE responses_turn SET expires_ms = expires_ms - $1', [ms]);
  const refused = (id: string, accountId = 'a') =>
    assert.rejects(turns.chain(id, accountId), { code: 'PREVIOUS_RESPONSE_NOT_FOUND' });

  test('`chain()` returns the turns from the first one, for their account only', async () => {
    await add('c1');
    await add('c2', 'c1');
    await add('c3', 'c2');
    await add('other', 'c1');
    const chain = await turns.chain('c3', 'a');
    assert.deepEqual(
      chain.map(({ id }) => id),
      ['c1', 'c2', 'c3'],
    );
    assert.deepEqual(chain[0]?.input, [{ role: 'user', content: 'c1' }]);
    await refused('c3', 'b');
    await refused('nobody');
    assert.equal(await turns.get('c1', 'b'), undefined);
    assert.equal(await turns.remove('c1', 'b'), false);
    assert.equal(await turns.remove('c1', 'a'), true);
    assert.equal(await turns.remove('c1', 'a'), false);
    await refused('c3');
  });

  test('a turn of a rolled back transaction is not stored', async () => {
    await assert.rejects(
      store.transaction(async (tx) => {
        await turns.add(tx, {
          id: 'undone',
          accountId: 'a',
          parentId: undefined,
          createdMs: clock.nowMs(),
          model: 'm',
          status: 'completed',
          costNano: 0n,
          inputJson: '[]',
          responseJson: '{}',
        });
        throw new Error('The charge failed');
      }),
      /The charge failed/,
    );
    assert.equal(await turns.get('undone', 'a'), undefined);
  });

  test('a conversation has at most a hundred turns', async () => {
    for (let at = 0; at < 101; at += 1) await add(`t${at}`, at === 0 ? undefined : `t${at - 1}`);
    assert.equal((await turns.chain('t99', 'a')).length, 100);
    await assert.rejects(turns.chain('t100', 'a'), /more than 100 turns/);
  });

  test('continuing a conversation extends all its turns; an idle one expires and is removed', async () => {
    await add('k1');
    await add('rests');
    await later(20 * HOUR_MS);
    await add('k2', 'k1');
    await later(20 * HOUR_MS);
    assert.equal((await turns.chain('k2', 'a')).length, 2);
    assert.equal(await turns.get('rests', 'a'), undefined);
    await refused('rests');
    await turns.prune();
    const rows = await store.query('SELECT id FROM responses_turn ORDER BY id');
    assert.deepEqual(
      rows.map(({ id }) => id),
      ['k1', 'k2'],
    );
  });

  test('a turn can be continued until it expires, whenever its conversation began', async () => {
    await add('b1');
    await later(11 * HOUR_MS);
    await add('b2', 'b1');
    await later(HOUR_MS);
    await add('b3', 'b2');
    await later(24 * HOUR_MS - MINUTE_MS);
    await turns.prune();
    assert.equal((await turns.chain('b3', 'a')).length, 3);
  });

  if (fixture.dialect === 'postgres') {
    test('a process with a wrong clock neither deletes turns nor stores expired ones', async () => {
      const wrong = (ms: number): StoredTurns =>
        new StoredTurns({ store, clock: new TestClock(Date.now() + ms), keepHours: () => 24 });
      await add('kept', undefined, { createdMs: Date.now() - 2 * DAY_MS });
      const ahead = wrong(2 * DAY_MS);
      await ahead.prune();
      for (const one of [ahead, wrong(0)]) {
        assert.notEqual(await one.get('kept', 'a'), undefined);
        assert.equal((await one.chain('kept', 'a')).length, 1);
      }
      assert.equal(await ahead.remove('kept', 'a'), true);
    });
  }

  test('`prune` removes all expired turns, however many there are', async () => {
    const ids = JSON.stringify(Array.from({ length: 1_001 }, (_, at) => `old${at}`));
    await store.query(
      `INSERT INTO responses_turn (account_id, parent_id, created_ms, expires_ms, model_id, status,
         input_json, response_json, size_bytes, cost_nano, id)
       SELECT 'a', '', 0, 0, 'm', 'completed', '[]', '{}', 1, 0, json_array_elements_text($1::json)`,
      [ids],
    );
    await turns.prune();
    const rows = await store.query("SELECT id FROM responses_turn WHERE id LIKE 'old%'");
    assert.equal(rows.length, 0);
  });

  test('an account has capacity up to its limit, and none if nothing is stored', async () => {
    assert.equal(await turns.hasCapacity('full'), true);
    for (const id of ['f1', 'f2', 'f3', 'f4']) {
      assert.equal(await turns.hasCapacity('full'), true);
      await add(id, undefined, { accountId: 'full' });
      // The figure is what counts; the bytes would take seconds.
      const sizeBytes = 64 * 1024 * 1024;
      clock.advance(MINUTE_MS);
      await store.query('UPDATE responses_turn SET size_bytes = $2 WHERE id = $1', [id, sizeBytes]);
    }
    assert.equal(await turns.hasCapacity('full'), false);
    assert.equal(await turns.hasCapacity('a'), true);
    keepHours = 0;
    assert.equal(await turns.hasCapacity('a'), false);
    keepHours = 24;
  });

  test('reading a long conversation does not block the event loop', async () => {
    const items = Array.from({ length: 30_000 }, () => ({ role: 'user', content: 'a' }));
    const inputJson = JSON.stringify(items);
    for (let at = 0; at < 30; at += 1) {
      await add(`m${at}`, at === 0 ? undefined : `m${at - 1}`, { inputJson });
    }
    const chain = await holdsNoLoop(() => turns.chain('m29', 'a'));
    assert.deepEqual(
      chain.map(({ id, input }) => [id, input.length]),
      Array.from({ length: 30 }, (_, at) => [`m${at}`, items.length]),
    );
    const sealer = new Sealer(Buffer.alloc(32), systemIds());
    const parts = { sealer, turns, serviceName: 'svc', canSearch: false };
    const body = { model: 'm', input: items, previous_response_id: 'm29' };
    const { request } = await holdsNoLoop(() => readTurn(parts, body, 'a'));
    assert.equal(request.facts.messageCount, 1);
  });

  /** A body of references to stored items, which it makes as large as they are. */
  const referring = (ids: readonly string[]) => {
    const sealer = new Sealer(Buffer.alloc(32), systemIds());
    const input = ids.map((id) => ({ type: 'item_reference', id }));
    const parts = { sealer, turns, serviceName: 'svc', canSearch: false };
    return readTurn(parts, { model: 'm', input }, 'a');
  };
  const hex = (at: number) => at.toString(16).padStart(32, '0');

  test('a stored item may be referenced only once', async () => {
    const id = `msg_${hex(1)}_0`;
    const output = [{ type: 'message', id, role: 'user', content: 'once' }];
    await add(`resp_${hex(1)}`, undefined, { responseJson: JSON.stringify({ output }) });
    const { request } = await referring([id]);
    assert.equal(request.messages.length, 1);
    await assert.rejects(referring([id, id]), /twice/);
  });

  test('a reference in the input of an earlier turn is read when the turn is continued', async () => {
    const id = `msg_${hex(7)}_0`;
    const output = [{ type: 'message', id, role: 'assistant', content: 'stored' }];
    await add(`resp_${hex(7)}`, undefined, { responseJson: JSON.stringify({ output }) });
    const reference = { type: 'item_reference', id };
    const inputJson = JSON.stringify([reference, { role: 'user', content: 'Go on' }]);
    await add('r1', undefined, { inputJson, responseJson: '{"output":[]}' });
    await add('r2', 'r1', { inputJson, responseJson: '{"output":[]}' });
    const sealer = new Sealer(Buffer.alloc(32), systemIds());
    const parts = { sealer, turns, serviceName: 'svc', canSearch: false };
    const body = { model: 'm', input: 'End', previous_response_id: 'r2' };
    const { request } = await readTurn(parts, body, 'a');
    assert.deepEqual(
      request.messages.map(({ role, content }) => [role, content]),
      [
        ['assistant', 'stored'],
        ['user', 'Go on\n\nGo on\n\nEnd'],
      ],
    );
  });

  test('the number and size of referenced turns are limited', async () => {
    const many = Array.from({ length: 1_001 }, (_, at) => `msg_${hex(at + 1_000)}_0`);
    await assert.rejects(referring(many), /more than 1000/);
    const ids = [hex(2), hex(3)];
    for (const id of ids) await add(`resp_${id}`);
    const half = 18 * 1024 * 1024;
    await store.query("UPDATE responses_turn SET size_bytes = $1 WHERE id LIKE 'resp_%'", [half]);
    await assert.rejects(referring(ids.map((id) => `msg_${id}_0`)), /too large/);
  });

  test('a conversation that is too large is rejected by its size alone', async () => {
    await add('l1');
    await add('l2', 'l1');
    await store.query(
      "UPDATE responses_turn SET size_bytes = $1, input_json = 'x' WHERE id = 'l1'",
      [36 * 1024 * 1024],
    );
    await assert.rejects(turns.chain('l2', 'a'), /is too large/);
  });
});
