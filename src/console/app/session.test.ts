import assert from 'node:assert/strict';
import { test } from 'node:test';
import { replaceGlobals } from '../../../test/support/replace-globals.ts';

let reloads = 0;
const localStorage: Record<string, unknown> = {};
Object.defineProperty(localStorage, 'removeItem', {
  value: (name: string) => Reflect.deleteProperty(localStorage, name),
});
const page = {
  document: { documentElement: { dataset: {} }, querySelector: () => null },
  location: { origin: 'http://localhost', reload: () => (reloads += 1) },
  localStorage,
};
replaceGlobals({ ...page, fetch });
const {
  leave: endSession,
  session,
  signInByKey,
  signInByLink,
  signOut,
} = await import('./session.ts');

const sessionOf = (keyId: string) => ({ id: keyId, csrfToken: 'token', accountId: 'a', keyId });

test('a link that is not valid does not end the session', async () => {
  globalThis.fetch = async () => Response.json({ session: sessionOf('ada') });
  await signInByKey('ada');
  const code = 'AUTHENTICATION_FAILED';
  globalThis.fetch = async () => Response.json({ error: 'Used', code }, { status: 401 });
  await assert.rejects(signInByLink('used'), { code });
  assert.equal(session.value?.id, 'ada');
});

test('another person in the same tab gets a new page', async () => {
  const signIn = async (keyId: string): Promise<void> => {
    globalThis.fetch = async () => Response.json({ session: sessionOf(keyId) });
    await Promise.race([signInByKey(keyId), new Promise((resolve) => setTimeout(resolve, 50))]);
  };
  const leave = async (): Promise<void> => {
    globalThis.fetch = async () => Response.json({ signOutUrl: null });
    await signOut();
  };
  await signIn('ada');
  await leave();
  await signIn('ada');
  assert.deepEqual([session.value?.id, reloads], ['ada', 0]);
  // The session expires, so that the history is still stored.
  localStorage['playground a chat'] = '[]';
  endSession('The session has ended');
  await signIn('bob');
  // The conversation, drafts and names of keys are those of the first person.
  assert.deepEqual([session.value, reloads, Object.keys(localStorage)], [null, 1, []]);
});
