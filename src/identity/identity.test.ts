/** How often keys in use are read from the database, and how soon a change takes effect. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { onEachStore, storeFixture } from '../../test/databases/stores.ts';
import { TestClock } from '../../test/support/test-clock.ts';
import { DAY_MS } from '../core/clock.ts';
import { systemIds } from '../core/ids.ts';
import { usdToNano } from '../core/money.ts';
import { StoreUnavailable } from '../db/db.ts';
import { IDENTITY_MIGRATIONS, Identity } from './identity.ts';

const COUNT = 20;
const CAP = usdToNano('1');
const INACTIVE = { code: 'AUTHENTICATION_FAILED_INACTIVE_KEY' };

onEachStore('cached API keys', (fixture) => {
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

  test('expire after a revocation even if the system clock is set back', async () => {
    const { clock, identity, other, accountId, keys } = await open();
    const [one] = keys;
    assert.ok(one);
    await identity.keys.callerOf(one.secret);
    await other.revokeKey(accountId, one.key.id);
    clock.setWallBack(600_000);
    clock.advance(3_001);
    await assert.rejects(async () => identity.keys.callerOf(one.secret), INACTIVE);
  });

  test('are refreshed together', async (t) => {
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
    assert.equal(queries.mock.callCount(), COUNT + 1);
    assert.deepEqual(
      callers.map(({ keyId }) => keyId),
      keys.map(({ key }) => key.id),
    );
    // Keys that were not used since are left out.
    clock.advance(3_001);
    await identity.keys.callerOf(keys[0]?.secret ?? '');
    assert.equal(queries.mock.callCount(), COUNT + 2);
    await identity.keys.writeLastUse();
    const rows = await store.query<{ last_used_ms: bigint }>(
      'SELECT last_used_ms FROM identity_key ORDER BY last_used_ms',
    );
    const used = rows.map(({ last_used_ms: usedMs }) => clock.nowMs() - Number(usedMs));
    assert.deepEqual([used.length, used[0], used.at(-1)], [COUNT, 3_001, 0]);
  });

  test('are read with their parents and budgets in one statement', async (t) => {
    const { store, clock, identity, accountId, keys } = await open();
    const { id: otherId } = await identity.createAccount('bob', 'paid');
    const budget = { tag: 'user', value: undefined, period: 'EPOCH', usdLimitNano: CAP } as const;
    const one = await identity.createBudget({ ...budget, accountId }, store);
    clock.advance(1);
    const two = await identity.createBudget({ ...budget, value: 'anna', accountId }, store);
    await identity.createBudget({ ...budget, accountId: otherId }, store);
    const parent = keys[0]?.key ?? assert.fail('there are keys');
    const child = await identity.createKey({
      ...parent,
      parentId: parent.id,
      usdLimitNano: CAP,
      expiresMs: clock.nowMs() + 60_000,
    });
    const below = { ...parent, parentId: child.key.id, expiresMs: clock.nowMs() + 90_000 };
    const grandchild = await identity.createKey(below);
    const secrets = [grandchild, child, ...keys].map(({ secret }) => secret);
    const queries = t.mock.method(store, 'query');
    const useAll = () => Promise.all(secrets.map(async (secret) => identity.keys.callerOf(secret)));
    for (const expected of [secrets.length, 1]) {
      queries.mock.resetCalls();
      const [ofGrandchild, ofChild, ofParent] = await useAll();
      assert.equal(queries.mock.callCount(), expected);
      const budgets = [one, two];
      assert.deepEqual(ofGrandchild?.budgets, { parentIds: [child.key.id], budgets });
      assert.deepEqual(ofChild?.budgets, { parentIds: [], budgets });
      assert.deepEqual(ofParent?.budgets, { parentIds: [], budgets });
      clock.advance(3_001);
    }
    const alone = await identity.createKey({ ...parent, accountId: otherId, parentId: parent.id });
    // The key of one account cannot have a parent key of another account.
    await assert.rejects(async () => identity.keys.callerOf(alone.secret), INACTIVE);
    await useAll();
    clock.advance(54_000);
    // The child has expired, and its own children with it; its parent stays valid.
    await assert.rejects(async () => identity.keys.callerOf(grandchild.secret), INACTIVE);
    assert.ok(await identity.keys.callerOf(keys[0]?.secret ?? ''));
  });

  test('are rejected within seconds after a revocation by another process, and at once after one by this process', async () => {
    const { clock, identity, other, accountId, keys } = await open();
    const [first, second, third] = keys;
    assert.ok(first && second && third);
    for (const { secret } of keys) await identity.keys.callerOf(secret);
    assert.ok(await other.revokeKey(accountId, second.key.id));
    assert.ok(await identity.keys.callerOf(second.secret), 'it is trusted for a moment');
    clock.advance(3_001);
    await identity.keys.callerOf(first.secret);
    await assert.rejects(async () => identity.keys.callerOf(second.secret), INACTIVE);
    assert.ok(await identity.keys.callerOf(third.secret));
    assert.ok(await identity.revokeKey(accountId, third.key.id));
    await assert.rejects(async () => identity.keys.callerOf(third.secret));
    assert.ok(await identity.keys.callerOf(first.secret));
  });

  test('are listed by pages and revoked with their descendants', async () => {
    const { store, clock, identity, accountId, keys } = await open();
    const parent = keys[0]?.key ?? assert.fail('there are keys');
    const below = { ...parent, parentId: parent.id };
    clock.advance(1);
    const child = await identity.createKey(below);
    clock.advance(1);
    const expired = await identity.createKey({ ...below, expiresMs: clock.nowMs() + 1 });
    const grandchild = await identity.createKey({ ...below, parentId: child.key.id });
    clock.advance(1);
    const idsOf = async (page = { limit: 10, offset: 0 }, more = {}) =>
      (await identity.listKeys(accountId, { parentId: parent.id, ...more }, page)).map(
        ({ id }) => id,
      );
    assert.deepEqual(await idsOf(), [expired.key.id, child.key.id]);
    assert.deepEqual(await idsOf({ limit: 1, offset: 1 }), [child.key.id]);
    assert.equal(await identity.countKeys(accountId, { parentId: parent.id }), 2);
    assert.equal(await identity.countKeys(accountId), COUNT + 3);
    assert.equal((await identity.listKeys(accountId, {}, { limit: 2, offset: 0 })).length, 2);
    assert.equal(await identity.revokeKey('another', parent.id), false);
    assert.ok(await identity.revokeKey(accountId, parent.id));
    assert.equal(await identity.revokeKey(accountId, parent.id), false);
    // An expired key frees its slot, and keeps its history.
    assert.deepEqual(await idsOf(), [expired.key.id]);
    assert.deepEqual(await idsOf(undefined, { revoked: true }), [expired.key.id, child.key.id]);
    assert.equal(await identity.findKey(accountId, grandchild.key.id), undefined);
    assert.equal(await identity.countKeys(accountId), COUNT);
    assert.equal(await identity.countKeys(accountId, { revoked: true }), COUNT + 3);
    const ids = await identity.idsFrom(accountId, parent.id, store);
    assert.deepEqual(
      new Set(ids),
      new Set([parent, child.key, expired.key, grandchild.key].map(({ id }) => id)),
    );
  });

  test('whose last use could not be written are written in the next round', async (t) => {
    const { store, identity, keys } = await open();
    const { secret, key } = keys[0] ?? assert.fail('there are keys');
    await identity.keys.callerOf(secret);
    for (const name of ['query', 'transaction'] as const) {
      t.mock.method(store, name, () => Promise.reject(new StoreUnavailable('away')));
    }
    await assert.rejects(identity.keys.writeLastUse(), StoreUnavailable);
    t.mock.restoreAll();
    await identity.keys.writeLastUse();
    const [row] = await store.query<{ last_used_ms: bigint | null }>(
      'SELECT last_used_ms FROM identity_key WHERE id = $1',
      [key.id],
    );
    assert.notEqual(row?.last_used_ms, null);
  });
});

/** Only processes that share a database have different clocks. */
test('a process whose clock is ahead ends no link, invitation or session of another one', async () => {
  const store = await storeFixture('postgres').open(IDENTITY_MIGRATIONS);
  const of = (ms: number): Identity => {
    const clock = new TestClock(Date.now() + ms);
    return new Identity({ store, clock, ids: systemIds(), keyPrefix: 'SVC' });
  };
  const [right, ahead] = [of(0), of(30 * DAY_MS)];
  const { id: accountId } = await right.createAccount('alice', 'paid');
  const keyId = await right.createMemberKey(accountId, '', store);
  const owner = { accountId, keyId };
  const link = await right.sessions.issueLink(accountId, keyId);
  const second = await right.sessions.issueLink(accountId, keyId);
  const wanted = { accountId, role: 'viewer', email: '', createdBy: keyId } as const;
  const { secret } = await right.members.invite(wanted, 7);
  await right.sessions.begin(owner, { userAgent: '', address: '' });
  await ahead.members.invite(wanted, 7);
  await ahead.sessions.prune();
  for (const one of [right, ahead]) {
    assert.equal((await one.members.invitation(secret)).accountId, accountId);
    assert.equal((await one.members.invitations(accountId)).length, 2);
    assert.equal((await one.sessions.list(accountId, undefined)).length, 1);
  }
  assert.deepEqual(await right.sessions.takeLink(link), owner);
  assert.deepEqual(await ahead.sessions.takeLink(second), owner);
});
