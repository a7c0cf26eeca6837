/** Concurrent changes of the members of one account by two processes, on both databases. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { onEachStore } from '../../test/databases/stores.ts';
import { untilBlocked } from '../../test/databases/waits.ts';
import { TestClock } from '../../test/support/test-clock.ts';
import type { MemberRole, SignInProviderSettings } from '../config/config.ts';
import { systemIds } from '../core/ids.ts';
import { IDENTITY_MIGRATIONS, Identity, type Member } from './identity.ts';

const PROVIDER: SignInProviderSettings = {
  id: 'acme',
  label: 'Acme',
  issuer: 'https://login.acme.example',
  clientId: 'x',
  clientAuthentication: 'basic',
  scopes: [],
  groupsClaim: 'groups',
  trustEmails: false,
  signOutAtProvider: false,
  rules: [],
};

onEachStore('members of an account', (fixture) => {
  async function open() {
    const store = await fixture.open(IDENTITY_MIGRATIONS);
    const parts = { store, clock: new TestClock(), ids: systemIds(), keyPrefix: 'SVC' };
    const processes = [new Identity(parts), new Identity(parts)] as const;
    const [identity, other] = processes;
    const { id: accountId } = await identity.createAccount('alice', 'paid');
    const invite = async (role: MemberRole): Promise<string> => {
      const wanted = { accountId, role, email: '', createdBy: 'key' };
      return (await identity.members.invite(wanted, 1)).secret;
    };
    const enter = async (at: 0 | 1, name: string, invitation?: string): Promise<Member> =>
      await processes[at].members.signIn({
        person: {
          issuer: PROVIDER.issuer,
          subject: name,
          email: `${name}@acme.example`,
          name,
          groups: [],
          idToken: '',
        },
        provider: PROVIDER,
        invitation,
        openAccount: async () => undefined,
      });
    return { store, identity, other, accountId, invite, enter };
  }

  test('one of several people who use an invitation at the same time becomes a member', async () => {
    const { identity, accountId, invite, enter } = await open();
    const secret = await invite('viewer');
    const all = ['ann', 'bob', 'cid', 'dan'].flatMap((name) => [
      enter(0, name, secret),
      enter(1, name, secret),
    ]);
    const results = await Promise.allSettled(all);
    const failures = results.filter((result) => result.status === 'rejected');
    assert.deepEqual(
      failures.map(({ reason }) => reason.code),
      Array.from({ length: all.length - 1 }, () => 'INVITATION_NOT_FOUND'),
    );
    assert.equal((await identity.members.list(accountId)).length, 1);
  });

  test('two owners who remove or demote each other at the same time leave one owner', async () => {
    const { identity, other, accountId, invite, enter } = await open();
    for (let round = 0; round < 4; round += 1) {
      for (const { id } of await identity.members.list(accountId)) {
        await identity.members.setRole(accountId, id, 'owner');
      }
      for (const name of ['ann', 'bob']) {
        const isThere = (await identity.members.list(accountId)).some((one) => one.name === name);
        if (!isThere) await enter(0, name, await invite('owner'));
      }
      const [ann, bob] = await identity.members.list(accountId);
      assert.ok(ann !== undefined && bob !== undefined);
      const results = await Promise.allSettled([
        identity.members.setRole(accountId, ann.id, 'viewer'),
        other.members.remove(accountId, bob.id),
      ]);
      const failures = results.filter((result) => result.status === 'rejected');
      assert.deepEqual(
        failures.map(({ reason }) => reason.code),
        ['LAST_OWNER'],
      );
      const left = await identity.members.list(accountId);
      assert.equal(left.filter(({ role }) => role === 'owner').length, 1);
    }
  });

  test('a member that is removed during its sign-in does not return', async () => {
    const { store, identity, accountId, invite, enter } = await open();
    const { id } = await enter(0, 'ann', await invite('owner'));
    let entering: Promise<unknown> | undefined;
    await store.transaction(async (tx) => {
      await identity.lockAccount(accountId, tx);
      entering = assert.rejects(enter(1, 'ann'), { code: 'SIGN_IN_NOT_ALLOWED' });
      if (store.dialect === 'postgres') await untilBlocked(store);
      await tx.query('DELETE FROM identity_member WHERE id = $1', [id]);
    });
    await entering;
    assert.deepEqual(await identity.members.list(accountId), []);
  });
});
