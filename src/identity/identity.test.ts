/** How often keys in use are read from the database, and how soon a change of one is seen. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { onEachStore } from '../../test/databases/stores.ts';
import { TestClock } from '../../test/support/test-clock.ts';
import { systemIds } from '../core/ids.ts';
import { IDENTITY_MIGRATIONS, Identity } from './identity.ts';

const COUNT = 20;

onEachStore('keys in use', (fixture) => {
  async function open() {
    const store = await fixture.open(IDENTITY_MIGRATIONS);
    const clock = new TestClock();
    const parts = { store, clock, ids: systemIds(), keyPrefix: 'SVC' };
    const [identity, other] = [new Identity(parts), new Identity(parts)];
    const { id: accountId } = await identity.createAccount('alice', 'paid');
    const keys = [];
    for (let at = 0; at < COUNT; at += 1) {
      keys.push(
        await identity.createKey({
          accountId,
          kind: 'INFERENCE',
          description: '',
          expiresMs: undefined,
          limitPeriod: 'EPOCH',
          usdLimitNano: undefined,
          diemLimitNano: undefined,
          modelPrivacy: 'ALL',
          models: undefined,
          limits: {},
        }),
      );
    }
    return { store, clock, identity, other, accountId, keys };
  }

  test('are read anew together where the database is shared', async (t) => {
    const { store, clock, identity, keys } = await open();
    const useAll = () =>
      Promise.all(keys.map(async ({ secret }) => identity.keys.callerOf(secret)));
    const queries = t.mock.method(store, 'query');
    await useAll();
    assert.equal(queries.mock.callCount(), COUNT);
    await useAll();
    clock.advance(2_000);
    await useAll();
    assert.equal(queries.mock.callCount(), COUNT, 'they are remembered');
    clock.advance(1_001);
    const callers = await useAll();
    const expected = store.dialect === 'postgres' ? COUNT + 1 : 2 * COUNT;
    assert.equal(queries.mock.callCount(), expected);
    assert.deepEqual(
      callers.map(({ keyId }) => keyId),
      keys.map(({ key }) => key.id),
    );
    // Those that nobody has used since are left out.
    clock.advance(3_001);
    await identity.keys.callerOf(keys[0]?.secret ?? '');
    assert.equal(queries.mock.callCount(), expected + 1);
    await identity.keys.noteLastUse();
    const rows = await store.query<{ last_used_ms: bigint }>(
      'SELECT last_used_ms FROM identity_key ORDER BY last_used_ms',
    );
    const used = rows.map(({ last_used_ms: usedMs }) => clock.nowMs() - Number(usedMs));
    assert.deepEqual([used.length, used[0], used.at(-1)], [COUNT, 3_001, 0]);
  });

  test('are refused within seconds of what another process does, and at once of what this one does', async () => {
    const { clock, identity, other, accountId, keys } = await open();
    const [first, second, third] = keys;
    assert.ok(first && second && third);
    for (const { secret } of keys) await identity.keys.callerOf(secret);
    assert.ok(await other.revokeKey(accountId, second.key.id));
    assert.ok(await identity.keys.callerOf(second.secret), 'it is trusted for a moment');
    clock.advance(3_001);
    await identity.keys.callerOf(first.secret);
    await assert.rejects(
      async () => identity.keys.callerOf(second.secret),
      /revoked|inactive|INACTIVE/i,
    );
    assert.ok(await identity.keys.callerOf(third.secret));
    assert.ok(await identity.revokeKey(accountId, third.key.id));
    await assert.rejects(async () => identity.keys.callerOf(third.secret));
    assert.ok(await identity.keys.callerOf(first.secret));
  });
});
